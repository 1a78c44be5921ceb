
# The end of a file of functions: prints which of the names that standard input lists
# are no functions.


def __temper_probe():
    import json
    import sys

    sys.stdout = sys.__stdout__
    print(json.dumps([n for n in json.loads(sys.stdin.read()) if not callable(globals().get(n))]))


__temper_probe()
