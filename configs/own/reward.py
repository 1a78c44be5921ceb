"""A reward of one's own. The function may ask for problem, trajectory, key, answer and
stop_reason by name, and returns a number, or a number with details. It has to return the
same for the same arguments."""


def reward(problem, trajectory, key, answer, stop_reason):
    right = stop_reason == "answered" and answer == key
    slips = trajectory.count("Error")
    value = max(0.5, 1 - 0.1 * slips) if right else 0
    return {"reward": value, "details": {"slips": slips, "level": problem["level"]}}
