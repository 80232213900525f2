"""The handler table: ATen operator name -> function(context, arguments)."""

HANDLERS = {}


class Args:
    """An ATen call's arguments by schema name, defaults filled in. Tensors are ir.Value or ir.Immediate."""

    def __init__(self, values):
        self.__dict__.update(values)

    def get(self, name, default=None):
        value = self.__dict__.get(name, default)
        return default if value is None else value


def op(*names):
    """Registers a handler. 'aten.add' covers all overloads, 'aten.add.Tensor' one of them (and wins)."""

    def register(function):
        for name in names:
            if name in HANDLERS:
                raise AssertionError(f"two handlers for {name}")
            HANDLERS[name] = function
        return function

    return register


def find(target):
    """The handler of an OpOverload, None if there is none."""
    overload = str(target)
    return HANDLERS.get(overload) or HANDLERS.get(overload.rsplit(".", 1)[0])
