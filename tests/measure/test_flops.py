"""Operations of what torch has no formula for, in every torch alike."""

from gangline.measure.operation_counts import _attention, _attention_backward


def test_attention_whose_heads_share_keys_and_values_counts_those_of_its_queries():
    query, shared, own = (2, 8, 16, 4), (2, 2, 16, 4), (2, 8, 16, 4)
    assert _attention(query, shared, shared) == _attention(query, own, own) == 2 * 2 * (2 * 8 * 16 * 16 * 4)
    assert _attention_backward(query, query, shared, shared) == _attention_backward(query, query, own, own)
