"""Choice of a training plan from numbers, and why every other plan lost. Pure: no torch, network or clock.

`PUBLIC` lists the names that other rooms import; all others are free to change. Nothing is imported here: ranks need
the arithmetic of pipelines alone, and `gangline plan` as little as it can.
"""

# fmt: off
PUBLIC = {
    "budget": ("check", "check_measured", "excess"),
    "certificate": ("pipeline_traffic", "plan_certificate"),
    "choice": ("PlanChoice", "choose_by_formula", "choose_plan"),
    "cost.interruptions": ("StorageCost", "storage_costs"),
    "cost.optimizer": ("matrix_updates", "optimizer_model"),
    "forecast": ("calibrated_site",),
    "formula.inputs": ("formula_profile",),
    "gpu_kinds": ("choose_kinds",),
    "known_gpus": (
        "GPUS_A_SERVER", "KnownGpu", "assumptions", "hypothetical_inventory", "with_known_gpus", "with_network",
    ),
    "layouts.bubble": ("require_schedule",),
    "layouts.degrees": ("NO_RULES", "degrees_that_work"),
    "layouts.layout": ("Layout", "program_decides"),
    "layouts.pipeline": ("pipeline_conflicts_of_plan", "stage_ranges", "stages_of_parameters"),
    "layouts.schedules": ("SINGLE", "num_stages", "owner_of", "stages_of"),
    "plans": (
        "choice_of_run", "evaluate_plan", "line_of_worker", "make_plan", "prove_plan", "reader_processes",
        "require_exchange", "seed_plan", "server_plan", "worker_exchange", "worker_plan", "worker_plans",
    ),
    "pool": ("choose_precision", "gpu_table", "open_pool"),
    "proof": ("make_proof_plan",),
    "request": ("PlanRequest",),
    "settings": ("WEIGHT_BYTES",),
}
# fmt: on
"""Names that other rooms use, by module."""
