
# The end of a file with a reward function: calls it with what standard input holds and
# prints one line of JSON: the reward with its details, or what is wrong with the result.


def __temper_reward():
    import json
    import math
    import numbers
    import sys

    given = json.loads(sys.stdin.read())
    result = globals()[given["name"]](**given["arguments"])
    sys.stdout = sys.__stdout__

    def bad(what):
        print(json.dumps({"bad": what}))

    details = None
    if isinstance(result, dict):
        if "reward" not in result or result.keys() - {"reward", "details"}:
            return bad("returned a dict with the keys %s, want reward and details" % sorted(map(str, result)))
        result, details = result["reward"], result.get("details")
        if details is not None and not isinstance(details, dict):
            return bad("returned details of type %s, want a dict" % type(details).__name__)
    if not isinstance(result, numbers.Real):
        return bad("returned a %s, want a number or {'reward': ..., 'details': ...}" % type(result).__name__)
    value = float(result)
    if not math.isfinite(value):
        return bad("returned %r, want a finite number" % value)
    try:
        line = json.dumps({"reward": value, "details": details}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as err:
        return bad("returned details that are no JSON: %s" % err)
    print(line)


__temper_reward()
