"""A program of its own, struck: its losses count the steps and may not be finite, as `faulty_code` says."""

from faulty_code import FaultyLong

from gangline.train import Session, parallelize

task = FaultyLong()
with Session() as session:
    options = session.plan.model
    model = parallelize(task.build_model(options), session, hints=task.hints)
    optimizer = session.optimizer(model)
    for batch in session.batches(task.build_data("train", {"model": options})):
        session.backward(task.loss(model(batch["tokens"]), batch))
        session.step(optimizer)
