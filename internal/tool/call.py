
# The end of a file of functions: calls the one that standard input names, with the
# arguments that it holds. They are data; nothing of them is evaluated as text.


def __temper_call():
    import json
    import sys

    call = json.loads(sys.stdin.read())
    sys.stdout = sys.__stdout__
    return globals()[call["name"]](**call["arguments"])


__temper_call()
