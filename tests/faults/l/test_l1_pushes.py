"""L1: pushes by the thousand, each three times in random order, and a service that is killed among them."""

import pytest
from tests.contracts.database.servers import postgres
from tests.faults.l.intake import intake
from tests.faults.l.sender import send, shuffled

pytestmark = pytest.mark.row("L1")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.tools)])
def database(request):
    if request.param == "sqlite":
        yield None
    else:
        with postgres(durable=True) as url:
            yield url


SIZES = [60, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("pushes", SIZES)
def test_each_push_is_one_order_however_often_it_is_delivered(tmp_path, database, seed, pushes):
    with intake(tmp_path, database) as service:
        sent = send(service.url, shuffled(pushes, times=3, seed=seed), seconds=pushes / 100)
        assert {each.status for each in sent} == {202}
        assert sorted(each.branch for each in service.orders()) == sorted(f"b{n}" for n in range(pushes))
    seconds = sorted(each.seconds for each in sent)
    if pushes == 1000:  # on a machine of its own
        assert seconds[-1] <= 2.0
        assert seconds[int(0.99 * len(seconds))] <= 0.25


@pytest.mark.row("I3")
@pytest.mark.parametrize("pushes", SIZES)
def test_no_acknowledged_push_is_lost_when_the_service_is_killed(tmp_path, database, seed, pushes):
    deliveries = shuffled(pushes, times=3, seed=seed)
    with intake(tmp_path, database) as service:
        strikes = {len(deliveries) // 3, 2 * len(deliveries) // 3}

        def strike(number):
            if number in strikes:
                service.kill()
                service.start()

        sent = send(service.url, deliveries, seconds=pushes / 100, on_each=strike)
        acknowledged = {each.branch for each in sent if each.status == 202}
        assert any(each.status is None for each in sent) or pushes < 1000
        kept = [each.branch for each in service.orders()]
        assert len(kept) == len(set(kept)), "a push became two orders"
        assert acknowledged <= set(kept), "an acknowledged push was lost"
        again = send(service.url, deliveries, seconds=pushes / 100)
        assert {each.status for each in again} == {202}
        assert sorted(each.branch for each in service.orders()) == sorted(f"b{n}" for n in range(pushes))
