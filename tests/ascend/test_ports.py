from __future__ import annotations

import pytest

from q35chat.ascend.mindspore_lite import advice
from q35chat.ascend.ports import describe, manifest_gears, ports, read_gears, write_gears

DECODE = ["input_ids", "attention_mask", "position_ids",
          "past_conv_states", "past_recurrent_states", "past_kv_cache"]  # fmt: skip
TEMPLATE = "input_ids:1,-1;attention_mask:1,-1;position_ids:4,1,-1;image_embeds:-1,2560"


def test_names_of_the_contract_are_kept_in_the_files_own_order() -> None:
    turned = [*DECODE[1:], DECODE[0]]

    assert ports("decode", turned, ["present_kv_cache", "logits"])[0] == tuple(turned)


def test_strange_names_are_replaced_by_order() -> None:
    found = ports("decode", [f"x{n}" for n in range(6)], ["a", "b", "c", "d"])

    assert found[0] == tuple(DECODE)
    assert found[1] == ("logits", "present_conv_states", "present_recurrent_states",
                             "present_kv_cache")  # fmt: skip


@pytest.mark.parametrize(("count", "last"), [(4, "image_embeds"), (8, "past_len")])
def test_prefill_with_and_without_states_is_told_apart_by_number(count: int, last: str) -> None:
    assert ports("prefill", [f"x{n}" for n in range(count)], [])[0][-1] == last


def test_names_of_an_unknown_number_stay_as_they_are() -> None:
    assert ports("decode", ["a", "b"], ["c"]) == (("a", "b"), ("c",))


def test_gears_fill_the_free_axes_in_order() -> None:
    gears = read_gears(TEMPLATE, "32,32,32,16;512,512,512,16", {})

    assert gears[1] == {
        ("input_ids", 1): 512,
        ("attention_mask", 1): 512,
        ("position_ids", 2): 512,
        ("image_embeds", 0): 16,
    }
    assert write_gears(gears[:1]) == (
        "input_ids:1=32,attention_mask:1=32,position_ids:2=32,image_embeds:0=16"
    )
    assert describe(gears) == "32 x 16, 512 x 16"


def test_gears_bear_the_engines_names() -> None:
    assert read_gears('"x0:1,-1"', '"8"', {"x0": "input_ids"}) == ({("input_ids", 1): 8},)


@pytest.mark.parametrize("dims", ["", "32,32", "a,b,c,d"])
def test_texts_that_do_not_fit_tell_nothing(dims: str) -> None:
    assert read_gears(TEMPLATE, dims, {}) == ()


def test_gears_of_the_manifest_have_rows_for_the_largest_picture_that_fits_their_tokens() -> None:
    prefill = manifest_gears("prefill", "32,512", "16,64", 4)

    pairs = [(gear["input_ids", 1], gear["image_embeds", 0]) for gear in prefill]
    assert pairs == [(32, 32), (512, 64)]
    assert manifest_gears("vision", "", "16", 4) == ({("pixel_values", 0): 64},)
    assert manifest_gears("decode", "1,2", "", 4)[1] == {
        ("input_ids", 1): 2,
        ("position_ids", 2): 2,
    }
    assert manifest_gears("decode", "", "16", 4) == manifest_gears("prefill", "32", "", 4) == ()


@pytest.mark.parametrize(
    ("cause", "wanted"),
    [
        ("dlopen libascend_kernel_plugin_python.so failed, error: libgraph.so", "set_env.sh"),
        ("Open file decode_variables/data_0 failed", "beside its"),
        ("Malloc device memory for weights failed", "--residency swap"),
        ("input U5 not found in graph", "export the bundle again"),
        ("op type RecurrentGatedDeltaRule not found in opp", "ASCEND_CUSTOM_OPP_PATH"),
        ("aclmdlSetInputDynamicDims failed", "none of the gears"),
        ("something else", ""),
    ],
)
def test_known_causes_have_an_advice(cause: str, wanted: str) -> None:
    assert wanted in advice(cause)
    assert bool(advice(cause)) == bool(wanted)
