"""A population, the slow way: the whole history is played again for each question, one rule after the other."""

import random


def replay(values, first, space, *, better, seed):
    """Members of every round as (parent, settings), from all values so far: `values[round][place]`, None if it failed.

    Args:
        values: Of the rounds that have ended.
        first: Settings of the first round, by place.
        space: Key to ("choices", [...]) or ("range", low, high, step), step None for any value.
        better: lower or higher.
        seed: Of the search.
    """
    rounds = [[(None, settings) for settings in first]]
    for number, ended in enumerate(values, start=1):
        size = len(ended)
        survivors = [place for place in range(size) if ended[place] is not None]
        if not survivors:
            return [*rounds, []]
        order = ranked(ended, survivors, better)
        fifth = size // 5 if size // 5 > 1 else 1
        leaders = order[:fifth]
        replaced = [place for place in range(size) if ended[place] is None]
        for place in reversed(order):
            if len(replaced) < fifth and place not in leaders:
                replaced.append(place)
        following = []
        for place in range(size):
            trial = (number - 1) * size + place
            if place not in replaced:
                following.append((trial, rounds[-1][place][1]))
                continue
            draw = random.Random(f"{seed}/{number}/{place}")
            leader = draw.choice(leaders)
            following.append(((number - 1) * size + leader, explored(rounds[-1][leader][1], space, draw)))
        rounds.append(following)
    return rounds


def explored(before, space, draw):
    """Settings of a parent, each key changed by chance."""
    settings = {}
    for key in sorted(space):
        kind, *axis = space[key]
        if kind == "choices":
            settings[key] = draw.choice(tuple(axis[0]))
        else:
            settings[key] = moved(before[key], *axis, factor=draw.choice((0.8, 1.25)))
    return settings


def ranked(values, survivors, better):
    """Places, best first, by repeated search for the best that is left."""
    order = []
    while len(order) < len(survivors):
        left = [place for place in survivors if place not in order]
        pick = left[0]
        for place in left:
            if (values[place] < values[pick]) if better == "lower" else (values[place] > values[pick]):
                pick = place
        order.append(pick)
    return order


def moved(value, low, high, step, *, factor):
    """The value on the grid that is nearest to its product, found by walking the grid."""
    if step is None:
        product = float(f"{value * factor:.6g}")
        return low if product < low else high if product > high else product
    count = 0
    while low + (count + 1) * step <= high:
        count += 1
    here = min(range(count + 1), key=lambda place: abs(low + place * step - value))
    nearest = round((value * factor - low) / step)
    target = nearest if nearest != here else here + (1 if factor > 1 else -1)
    return low + min(max(target, 0), count) * step
