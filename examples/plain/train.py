"""Any program at all: no torch, no gangline. Finds the slope of a line by gradient descent and prints what it sees."""

import os


def main() -> None:
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    samples = [(x / 10, 3.0 * x / 10) for x in range(1 + rank, 100, world_size)]
    slope = 0.0
    for step in range(200):
        slope -= 0.01 * sum((slope * x - y) * x for x, y in samples) / len(samples)
        if step % 50 == 0:
            print(f"rank {rank} of {world_size}: step {step}, slope {slope:.3f}", flush=True)
    print(f"rank {rank} of {world_size}: slope {slope:.3f}")


if __name__ == "__main__":
    main()
