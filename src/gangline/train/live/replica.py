"""A rank among live replicas: it trains until it is done, over as many gangs as it takes."""

import gc
import os
import time
from collections.abc import Callable
from dataclasses import replace

from gangline.keeper.ipc.environment import RankEnvironment
from gangline.train import heartbeat
from gangline.train.live.recovery import RetainedState, recover
from gangline.train.live.rejoin import await_next_generation, meet
from gangline.train.loop.engine import TrainingEngine
from gangline.train.loop.sample_order import next_positions
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import Meshes
from gangline.train.runtime.error_classification import describe, is_peer_loss
from gangline.train.runtime.torch_compat import abort_all_groups, forget_groups


class Replica:
    """What outlives the gangs that this process is part of."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._environment = replace(RankEnvironment.read(os.environ), generation=context.generation)
        self._kept = RetainedState()
        self._engine: TrainingEngine | None = None

    def train(self, attempt: Callable[[], int]) -> int:
        """Call `attempt`, which builds a training and calls `begin`, until no peer is lost in it; its last answer."""
        while True:
            try:
                return attempt()
            except Exception as error:
                if not is_peer_loss(error):
                    raise
                lost, reason = time.monotonic(), describe(error)
            self._leave(reason)
            self._let_go()
            self._meet_again(reason)
            self._context.events.emit("met_again", seconds=time.monotonic() - lost)

    def begin(self, engine: TrainingEngine) -> None:
        """Give a freshly built training its state: from the living, or else from the newest checkpoint. Collective."""
        if recover(self._context, engine, self._kept):
            self._engine = engine
            self._tell_redone(engine)
            self._kept = RetainedState()
            heartbeat.beat(engine.progress.step)
            engine.save_anew()
        else:
            engine.resume()
            self._engine = engine
            self._context.redone_until = max(self._context.redone_until, self._kept.step)

    def _tell_redone(self, engine: TrainingEngine) -> None:
        """What the lost replica had taken and not finished is nobody's loss: all take it again."""
        cursor, skipped, _ = engine.next_samples
        if self._kept.step >= 0 and engine.has_more:
            _, after = next_positions(cursor, self._context.plan.global_batch, skipped)
            self._context.events.emit("redone", step=engine.progress.step + 1, samples=[cursor, after])

    def _leave(self, reason: str) -> None:
        """Keep the state, end the training that it was the state of."""
        context, engine, self._engine = self._context, self._engine, None
        if engine is not None:
            self._kept = RetainedState.of(engine)
        context.events.emit("peer_lost", step=max(self._kept.step, 0), reason=reason)
        abort_all_groups()
        if engine is not None:
            engine.abandon()
        context.memories.clear()
        context.waits.take()

    def _let_go(self) -> None:
        """Close the links of all groups: a peer that waits for this rank and has none to the dead hears of it so.

        They close with the last reference, and a training is full of cycles.
        """
        meshes, self._context.meshes = self._context.meshes, Meshes()
        for mesh in (meshes.parameters, meshes.sequence, meshes.experts):
            if mesh is not None:
                forget_groups(mesh)
        del self._context.groups, meshes
        gc.collect()

    def _meet_again(self, reason: str) -> None:
        """In the same process, under the same number, with new groups."""
        context = self._context
        context.phase("rendezvous")
        self._environment, context.groups = meet(await_next_generation(self._environment, reason), context.plan.device)
        context.meshes = Meshes.of(context.plan, context.rank)
        context.generation = self._environment.generation
        context.events.next_generation(context.generation)
