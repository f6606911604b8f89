"""L1: pushes by the thousand, each three times in random order, forged ones and kills of the service among them."""

import random
import threading

import pytest
from tests.contracts.database.servers import postgres
from tests.faults.l.intake import intake
from tests.faults.l.sender import send, shuffled
from tests.serve.deliveries import push, signed

from gangline.serve.web.body_limits import MODEST_BYTES

pytestmark = [pytest.mark.row("L1", full="1,000 pushes, three times each"), pytest.mark.long]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.tools)])
def database(request):
    if request.param == "sqlite":
        yield None
    else:
        with postgres(durable=True) as url:
            yield url


SIZES = [200, pytest.param(1000, marks=pytest.mark.slow)]


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


def forged(count):
    """As many pushes that nobody signed, every tenth of them larger than any real one."""
    for number in range(count):
        padding = {"padding": "x" * (2 * MODEST_BYTES)} if number % 10 == 0 else {}
        yield "forged", *signed(push(f"evil-{number}", **padding), secret="a guess")


@pytest.mark.row("P6", "L5")
@pytest.mark.parametrize("pushes", SIZES)
def test_forged_pushes_of_the_same_address_cost_the_good_ones_nothing(tmp_path, seed, pushes):
    deliveries = [*shuffled(pushes, times=3, seed=seed), *forged(pushes)]
    random.Random(seed).shuffle(deliveries)
    with intake(tmp_path) as service:
        sent = send(service.url, deliveries, seconds=pushes / 100)
        assert {each.status for each in sent if each.branch != "forged"} == {202}
        assert {each.status for each in sent if each.branch == "forged"} <= {401, 413}
        assert sorted(each.branch for each in service.orders()) == sorted(f"b{n}" for n in range(pushes))
    seconds = sorted(each.seconds for each in sent if each.branch != "forged")
    if pushes == 1000:  # on a machine of its own
        print(f"p99 {seconds[int(0.99 * len(seconds))]:.3f} s, max {seconds[-1]:.3f} s")
        assert seconds[-1] <= 2.0
        assert seconds[int(0.99 * len(seconds))] <= 0.25


@pytest.mark.row("I3")
@pytest.mark.parametrize("pushes", SIZES)
def test_no_acknowledged_push_is_lost_when_the_service_is_killed(tmp_path, database, seed, pushes):
    deliveries = shuffled(pushes, times=3, seed=seed)
    with intake(tmp_path, database) as service:
        strikes = {len(deliveries) // 3, 2 * len(deliveries) // 3}

        turn, restarts = threading.Lock(), []

        def restart():
            with turn:
                service.kill()
                service.start()

        def strike(number):  # the senders go on meanwhile
            if number in strikes:
                restarts.append(threading.Thread(target=restart))
                restarts[-1].start()

        sent = send(service.url, deliveries, seconds=pushes / 100, on_each=strike)
        for each in restarts:
            each.join()
        acknowledged = {each.branch for each in sent if each.status == 202}
        assert any(each.status is None for each in sent) or pushes < 1000
        kept = [each.branch for each in service.orders()]
        assert len(kept) == len(set(kept)), "a push became two orders"
        assert acknowledged <= set(kept), "an acknowledged push was lost"
        again = send(service.url, deliveries, seconds=pushes / 100)
        assert {each.status for each in again} == {202}
        assert sorted(each.branch for each in service.orders()) == sorted(f"b{n}" for n in range(pushes))
