"""Choice of a training plan from numbers, and why every other plan lost. Pure: no torch, network or clock.

`PUBLIC` lists the names that other rooms import; all others are free to change. Nothing is imported here: ranks need
the arithmetic of pipelines alone, and `gangline plan` as little as it can.
"""

# fmt: off
PUBLIC = {
    "axes.bubble": ("require_schedule",),
    "axes.pipeline_conflicts": ("pipeline_conflicts_of_plan",),
    "axes.schedules": ("SINGLE", "num_stages", "owner_of", "stages_of"),
    "axes.stage_cut": ("stage_ranges", "stages_of_parameters"),
    "axes.tensor": ("NO_RULES", "degrees_that_work"),
    "forecast.interruptions": ("StorageCost", "storage_costs"),
    "forecast.memory": ("num_owners",),
    "forecast.optimizer_model": ("optimizer_model",),
    "forecast.shape_forecast": ("calibrated_site",),
    "forecast.traffic": ("matrix_updates",),
    "forecast.widths": ("WEIGHT_BYTES",),
    "forecast.worker_exchange": ("require_exchange", "worker_exchange"),
    "gang_plans": (
        "choice_of_run", "evaluate_plan", "line_of_worker", "make_plan", "prove_plan", "reader_processes", "seed_plan",
        "server_plan", "worker_plan", "worker_plans",
    ),
    "proof_plan": ("make_proof_plan",),
    "selection.budget": ("check", "check_measured", "excess"),
    "selection.choice": ("PlanChoice", "choose_by_formula", "choose_plan"),
    "selection.formula_question": ("formula_profile",),
    "selection.gpu_kinds": ("choose_kinds",),
    "selection.plan_certificate": ("pipeline_traffic", "plan_certificate"),
    "selection.request": ("PlanRequest",),
    "shapes.device_pool": ("choose_precision", "gpu_table", "open_pool"),
    "shapes.hypothetical": ("GPUS_A_SERVER", "hypothetical_inventory", "with_known_gpus", "with_network"),
    "shapes.known_gpus": ("KnownGpu", "assumptions"),
    "shapes.shape": ("Shape", "program_decides"),
}
# fmt: on
"""Names that other rooms use, by module."""
