"""Every series that a rule or board names is found, and no word that is none."""

import json

import pytest

from gangline.metrics.promql import check_expressions, expressions_in, is_ours, selectors_in


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("gangline_train_loss", {"gangline_train_loss"}),
        ('rate(gangline_train_tokens_total{run="$run"}[5m])', {"gangline_train_tokens_total"}),
        ('label_replace(kube_pod_labels{label_gangline_run!=""}, "run", "$1", "label_gangline_run", "(.+)")', set()),
        ('max by (gangline_gang) (up{gangline_gang="gangline_not_a_series"})', set()),
        ("run:gangline_useful:ratio > 0.5 and on (run) gangline_run_info",
         {"run:gangline_useful:ratio", "gangline_run_info"}),
        ("'gangline_quoted'", set()),
        ("sum(increase(gangline_run_info[$__range])) / topk($few, gangline_train_loss)",
         {"gangline_run_info", "gangline_train_loss"}),
        ('label_values(gangline_run_info{project="$project", branch=~"$branch"}, commit)', {"gangline_run_info"}),
        ("query_result(max_over_time(gangline_train_loss[${__range_s}s]))", {"gangline_train_loss"}),
    ],
)  # fmt: skip
def test_names_are_found_where_series_stand(expression, found):
    assert {name for name in selectors_in(expression) if is_ours(name)} == found


def test_labels_are_found_with_their_series():
    expression = 'gangline_run_stage{stage="train", state=~"done|taken"} / up{job!="x{y=1}"}'
    assert selectors_in(expression) == {"gangline_run_stage": {"stage", "state"}, "up": {"job"}}


def test_an_expression_that_is_no_promql_is_reported():
    found = [("", "sum(gangline_train_loss"), ("", "http://127.0.0.1:8321")]
    (said,) = check_expressions(found)
    assert said.startswith("no PromQL, ")
    assert said.endswith("in sum(gangline_train_loss")


def test_what_is_neither_declared_nor_recorded_is_said():
    found = [("run:gangline_own", "gangline_train_loss"), ("", "run:gangline_own"), ("", "gangline_train_lost"),
             ("", 'gangline_train_loss{branch="main"}'), ("", 'gangline_checkpoint_duration_seconds_bucket{le="1"}'),
             ("", "gangline_checkpoint_duration_seconds")]  # fmt: skip
    said = check_expressions(found)
    assert [each.split(",")[0] for each in said] == [
        "gangline_train_lost: no series of the catalogue and no recorded one",
        "gangline_train_loss: has no label branch",
        "gangline_checkpoint_duration_seconds: no series of the catalogue and no recorded one",
    ]


def test_a_file_that_is_none_is_said(tmp_path):
    (tmp_path / "odd.yml").write_text("a: [")
    with pytest.raises(ValueError, match="no YAML"):
        list(expressions_in(tmp_path / "odd.yml"))
    with pytest.raises(FileNotFoundError):
        list(expressions_in(tmp_path / "none.yml"))


def test_expressions_of_a_folder_of_rules_and_boards_are_found(tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "one.yml").write_text(
        "groups: [{name: g, rules: [{record: 'a:gangline_b', expr: gangline_train_loss}]}]"
    )
    board = {"panels": [{"targets": [{"expr": "gangline_train_step"}]}], "templating": {"query": "gangline_run_info"}}
    (tmp_path / "board.json").write_text(json.dumps(board))
    assert set(expressions_in(tmp_path)) == {
        ("a:gangline_b", "gangline_train_loss"), ("", "gangline_train_step"), ("", "gangline_run_info"),
    }  # fmt: skip
