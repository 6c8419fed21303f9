from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from q35chat.ascend import diagnosis as ascend
from q35chat.ascend.diagnosis import KERNELS, Places
from q35chat.diagnosis import bundle, machine
from q35chat.diagnosis.checks import Check, Group, run_probe
from q35chat.diagnosis.machine import Library
from tests.support.converter import LIST, vendor


def only(checks: Iterator[Check]) -> Check:
    (check,) = checks
    return check


def places(folder: Path, **environment: str) -> Places:
    return Places(environment, folder / "toolkit", folder / "driver.info", folder / "dev")


def test_a_probe_that_fails_is_a_check() -> None:
    def broken() -> Iterator[Check]:
        yield Check("first", "ok", "seen")
        raise OSError("no\nsuch thing")

    assert run_probe("Part", broken) == Group(
        "Part", (Check("Part", "warning", "OSError: no such thing"),)
    )


def test_every_probe_of_this_machine_answers() -> None:
    for probe in (machine.python, machine.processor, machine.terminal, machine.onnxruntime):
        assert all(check.found for check in run_probe("x", probe).checks)


def test_weights_that_this_processor_multiplies_wrongly_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(machine.onnxruntime())[-1].status == "ok"
    program = machine._MULTIPLICATION.replace(
        "; main()", "; import q35chat.runtimes.multiplication as m; m._PEAK = 500; main()"
    )
    monkeypatch.setattr(machine, "_MULTIPLICATION", program)

    check = list(machine.onnxruntime())[-1]

    assert check.status == "damaged"
    assert check.found.startswith("wrong on this processor: 4 bits in blocks of 32, ")


@pytest.mark.parametrize(("most", "said"), [(100 << 20, ["100.0 MiB for a process"]), (-1, [])])
def test_a_limit_of_memory_that_may_keep_libraries_out_is_told(
    monkeypatch: pytest.MonkeyPatch, most: int, said: list[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    found = [check for check in machine.processor() if check.name == "ulimit -v"]
    assert [check.found for check in found if check.status == "warning"] == said


def test_a_locale_without_utf8_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "ANSI_X3.4-1968")

    assert list(machine.terminal())[-1].advice == "set LANG to a UTF-8 locale, such as C.UTF-8"


# Libraries -----------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a package `mindspore_lite` that children can import."""
    folder = tmp_path / "mindspore_lite"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return folder / "__init__.py"


def lite() -> Check:
    return only(ascend.mindspore_lite(ascend.lite_library()))


def test_a_package_with_all_calls_is_good(package: Path) -> None:
    double = "from tests.doubles.mindspore_lite import"
    package.write_text(f"{double} *\n{double} __version__\n", encoding="utf-8")

    assert lite() == Check("mindspore_lite", "ok", "2.9.0")


def test_an_old_package_is_named_with_what_it_lacks(package: Path) -> None:
    package.write_text(
        "__version__ = '2.0.0'\n"
        "class Model:\n    def predict(self): ...\n    def resize(self): ...\n"
        "class Tensor: ...\nclass Context: ...\nclass DataType: ...\n",
        encoding="utf-8",
    )

    check = lite()
    assert check.status == "warning"
    assert check.found == "2.0.0, which has no Model.get_outputs, Model.get_model_info"
    assert "2.9 or newer" in check.advice


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise ImportError('libgraph.so: cannot open')", "ImportError: libgraph.so: cannot open"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashes .*SIGSEGV"),
        ("import os; os._exit(0)", "answers in no known way"),
    ],
)
def test_a_package_that_cannot_be_imported_ends_only_its_own_process(
    package: Path, source: str, found: str
) -> None:
    package.write_text(source + "\n", encoding="utf-8")

    check = lite()
    assert check.status == "missing"
    assert re.search(found, check.found)


def test_an_import_that_never_ends_is_given_up(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_TIMEOUT_S", 0.2)
    package.write_text("import time; time.sleep(60)\n", encoding="utf-8")

    assert lite().found == "does not answer (TimeoutExpired)"


@pytest.mark.parametrize(("name", "status"), [(None, "info"), ("/opt/converter_lite", "ok")])
def test_a_converter_is_a_bonus(name: str | None, status: str) -> None:
    assert only(ascend.converter(name)).status == status


# CANN, driver, kernels -----------------------------------------------------------------------


def test_cann_is_found_with_its_version(tmp_path: Path) -> None:
    (tmp_path / "cann").mkdir()
    (tmp_path / "cann" / "version.cfg").write_text(
        "# version: 1.0\nruntime_running_version=[7.7.0.5:8.5.0]\n", encoding="utf-8"
    )
    here = places(tmp_path, ASCEND_HOME_PATH=str(tmp_path / "cann"))

    assert only(ascend.cann(here)).found.startswith("8.5.0 (")
    assert ascend.cann_version(here) == "8.5.0"


def test_cann_that_is_installed_but_not_set_up_says_how(tmp_path: Path) -> None:
    (tmp_path / "toolkit").mkdir()
    check = only(ascend.cann(places(tmp_path)))

    assert (check.status, check.advice) == ("warning", f"source {tmp_path}/set_env.sh")


def test_no_cann_is_missing(tmp_path: Path) -> None:
    assert only(ascend.cann(places(tmp_path))).found == "not found"
    gone = places(tmp_path, ASCEND_HOME_PATH="/nowhere")
    assert only(ascend.cann(gone)).found == "/nowhere does not exist"


def test_driver_and_devices(tmp_path: Path) -> None:
    (tmp_path / "driver.info").write_text("Version=24.1.rc2\n", encoding="utf-8")
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "davinci1", "davinci_manager"):
        (tmp_path / "dev" / name).touch()

    assert [check.found for check in ascend.driver(places(tmp_path))] == [
        "24.1.rc2",
        "davinci0, davinci1",
    ]


def test_no_driver_and_no_device_are_missing(tmp_path: Path) -> None:
    assert [check.status for check in ascend.driver(places(tmp_path))] == ["missing", "missing"]


def kernels(tmp_path: Path, *folders: Path) -> Check:
    value = ":".join(map(str, folders))
    here = places(tmp_path, ASCEND_CUSTOM_OPP_PATH=value)
    return only(ascend.kernels(here, Library("2.9.0")))


def test_both_kernels_of_one_package_are_good(tmp_path: Path) -> None:
    both = vendor(tmp_path / "qwen", *KERNELS)

    check = kernels(tmp_path, vendor(tmp_path / "other", "Else"), both)
    assert (check.status, check.found.rpartition(" ")[2]) == ("ok", str(both))


def test_kernels_of_two_packages_are_a_warning(tmp_path: Path) -> None:
    old, new = vendor(tmp_path / "old", KERNELS[0]), vendor(tmp_path / "new", KERNELS[1])

    check = kernels(tmp_path, old, new)
    assert check.status == "warning"
    assert str(old) in check.found
    assert "one checkout" in check.advice


def test_a_missing_kernel_is_named(tmp_path: Path) -> None:
    check = kernels(tmp_path, vendor(tmp_path / "half", KERNELS[0]))

    assert (check.status, KERNELS[1] in check.found) == ("missing", True)


def test_an_older_revisions_kernel_is_told(tmp_path: Path) -> None:
    check = kernels(tmp_path, vendor(tmp_path / "old", KERNELS[0], f"{KERNELS[1]}310P"))

    assert check.status == "missing"
    assert check.found.endswith(f"but {KERNELS[1]}310P of an older revision")


def test_a_package_that_was_installed_but_not_set_up_is_named_with_its_script(
    tmp_path: Path,
) -> None:
    script = tmp_path / "opp" / "vendors" / "mslite_custom_ops" / "bin" / "set_env.bash"
    script.parent.mkdir(parents=True)
    script.touch()
    here = places(tmp_path, ASCEND_OPP_PATH=str(tmp_path / "opp"))
    check = only(ascend.kernels(here, Library("2.11.0")))

    assert (check.status, check.advice) == ("missing", f"source {script} before q35chat starts")


def test_a_wheel_that_has_the_kernels_needs_no_path_to_chat(tmp_path: Path) -> None:
    check = only(ascend.kernels(places(tmp_path), Library("2.11.0")))

    assert check.status == "info"
    assert "for convert" in check.advice


def test_a_package_before_this_model_is_a_warning() -> None:
    check = only(ascend.mindspore_lite(Library("2.8.1")))

    assert (check.status, check.found) == ("warning", "2.8.1")


def test_no_path_and_a_wrong_path_are_missing(tmp_path: Path) -> None:
    assert kernels(tmp_path).found == "ASCEND_CUSTOM_OPP_PATH is not set"
    assert kernels(tmp_path, tmp_path / "gone").found == f"{tmp_path / 'gone'} does not exist"


def test_a_list_that_is_no_json_is_passed_over(tmp_path: Path) -> None:
    broken = vendor(tmp_path / "broken", *KERNELS)
    (broken / LIST).write_text("{", encoding="utf-8")

    assert kernels(tmp_path, broken).status == "missing"


def test_no_npu_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert only(ascend.npu()).status == "missing"


# Bundle --------------------------------------------------------------------------------------


def test_the_demo_needs_the_cpu_runtime() -> None:
    good = [Group("CPU", (Check("onnxruntime", "ok", "1.32"),))]
    bad = [Group("CPU", (Check("onnxruntime", "missing", "no", "install it"),))]

    assert [check.status for check in bundle.bundle(None, good)] == ["info"]
    assert list(bundle.bundle(None, bad))[-1] == Check(
        "needs onnxruntime", "missing", "no", "install it"
    )


def test_the_demo_is_told_to_be_made_or_where_it_was_made(tmp_path: Path) -> None:
    first, again = (next(bundle.bundle(None, [], demo=demo)) for demo in (None, tmp_path))

    assert first.found == "the demo, made when it is first used"
    assert again.found == f"the demo, made before: {tmp_path}"


def test_a_folder_that_is_no_bundle_is_missing(tmp_path: Path) -> None:
    check = only(bundle.bundle(tmp_path, []))

    assert check.status == "missing"
    assert "is not a bundle" in check.advice
