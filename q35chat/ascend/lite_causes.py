"""What to do about the failures of MindSpore Lite that are known.

Pure text: the cause as the native log has it, to an advice for the user.
"""

from __future__ import annotations

import re

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"libascend_kernel_plugin|libgraph\.so|libascendcl|Failed to register Ascend",
        "CANN was not found: source its set_env.sh before q35chat starts",
    ),
    (
        r"GetTensorDataFromExternal|_variables",
        "the *_variables folder must lie beside its *_graph.mindir under the name it was made with",
    ),
    (
        r"[Mm]alloc|[Oo]ut of memory|[Aa]lloc\w* .*(fail|mem)|EL0004|207001",
        "the device has no memory left: use --residency swap, or free the NPU",
    ),
    (
        r"aclmdlSetInputDynamicDims|Not support dynamic input|dynamic dims",
        "the shape is none of the gears that the graph was converted with",
    ),
    (
        r"not found in graph",
        "a graph input is used by no node: export the bundle again",
    ),
    (
        r"(opp|vendor|[Oo]p ?type|kernel).*(not (found|exist|support)|[Ff]ail)|E[ZE]3003|E19010",
        (
            "an operator has no kernel: set ASCEND_CUSTOM_OPP_PATH to the vendor package of the "
            "delta rules before q35chat starts"
        ),
    ),
)


def advice(cause: str) -> str:
    """What to do about `cause`; empty when it is not known."""
    for pattern, text in _ADVICE:
        if re.search(pattern, cause):
            return text
    return ""
