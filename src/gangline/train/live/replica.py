"""A rank of live replicas: it trains until it is done, through as many generations as that takes."""

import gc
import time
from collections.abc import Callable
from dataclasses import replace

from gangline.keeper.ipc.environment import RankEnvironment
from gangline.train import heartbeat
from gangline.train.live.recovery import RetainedState, recover
from gangline.train.live.rejoin import await_next_generation, rejoin
from gangline.train.loop.engine import TrainingEngine
from gangline.train.loop.sample_order import next_positions
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import Meshes
from gangline.train.runtime.error_classification import describe, is_peer_loss
from gangline.train.runtime.torch_compat import abort_all_groups, forget_groups


class Replica:
    """State of this process that outlives its gangs."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._environment = replace(RankEnvironment.read(), generation=context.generation)
        self._retained = RetainedState()
        self._engine: TrainingEngine | None = None

    def train(self, attempt: Callable[[], int]) -> int:
        """Call `attempt`, which builds a training and calls `begin`, until it returns without losing a peer."""
        while True:
            try:
                return attempt()
            except Exception as error:
                if not is_peer_loss(error):
                    raise
                lost_at, reason = time.monotonic(), describe(error)
            self._leave(reason)
            self._release_groups()
            self._rejoin(reason)
            self._context.events.emit("met_again", seconds=time.monotonic() - lost_at)

    def begin(self, engine: TrainingEngine) -> None:
        """Restore a new training from the living ranks, or else from the newest checkpoint. Collective."""
        if recover(self._context, engine, self._retained):
            self._engine = engine
            self._emit_redone(engine)
            self._retained = RetainedState()
            heartbeat.beat(engine.progress.step)
            engine.save_again()
        else:
            engine.resume()
            self._engine = engine
            self._context.redone_until = max(self._context.redone_until, self._retained.step)

    def _emit_redone(self, engine: TrainingEngine) -> None:
        """Report the samples of the interrupted step, which all ranks take again."""
        cursor, skipped, _ = engine.next_samples
        if self._retained.step >= 0 and engine.has_more:
            _, after = next_positions(cursor, self._context.plan.global_batch, skipped)
            self._context.events.emit("redone", step=engine.progress.step + 1, samples=[cursor, after])

    def _leave(self, reason: str) -> None:
        """Retain the state and end the training."""
        context, engine, self._engine = self._context, self._engine, None
        if engine is not None:
            self._retained = RetainedState.of(engine)
        context.events.emit("peer_lost", step=max(self._retained.step, 0), reason=reason)
        abort_all_groups()
        if engine is not None:
            engine.abandon()
        context.memories.clear()
        context.waits.take()

    def _release_groups(self) -> None:
        """Close the connections of all groups, so that peers that wait for this rank notice.

        They close with the last reference, and a training has reference cycles.
        """
        meshes, self._context.meshes = self._context.meshes, Meshes()
        for mesh in (meshes.parameters, meshes.sequence, meshes.experts):
            if mesh is not None:
                forget_groups(mesh)
        del self._context.groups, meshes
        gc.collect()

    def _rejoin(self, reason: str) -> None:
        """Join the next generation in the same process, as the same rank, with new groups."""
        context = self._context
        context.phase("rendezvous")
        self._environment, context.groups = rejoin(
            await_next_generation(self._environment, reason), context.plan.device
        )
        context.meshes = Meshes.of(context.plan, context.rank)
        context.generation = self._environment.generation
        context.events.next_generation(context.generation)
