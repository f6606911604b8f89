"""How ranks find each other, where one does not come."""

from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from gangline.errors import LostPeerError
from gangline.keeper.ipc.environment import RankEnvironment
from gangline.train.runtime import rendezvous


def test_rank_that_never_arrives_is_named_by_who_waited(tmp_path, monkeypatch):
    monkeypatch.setattr(rendezvous, "JOIN_TIMEOUT", timedelta(seconds=1))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environ = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port), "GANGLINE_RUN": "r", "GANGLINE_GANG": "r", "GANGLINE_HOME": str(tmp_path),
        "GANGLINE_PLAN": "p", "GANGLINE_CODE": "c", "GANGLINE_STORE": "file:s", "GANGLINE_KEY_FILE": "k",
        "GANGLINE_GENERATION": "3", "GANGLINE_HEARTBEAT": str(tmp_path / "beat"),
    }  # fmt: skip
    store.set("r/3/arrived/2", "yes")
    with pytest.raises(LostPeerError, match=r"rank 0 wanted 4 ranks .* after 1 s ranks 1, 3 had not arrived"):
        rendezvous.join(RankEnvironment.read(environ), "cpu")
