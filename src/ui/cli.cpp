#include "ui/cli.h"

#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "base/files.h"
#include "base/guardian.h"
#include "base/interrupt.h"
#include "ui/commands.h"

namespace stitch::ui {
namespace {

// Options that several commands have.
void add_target_and_precision(CLI::App& c, std::string& target, std::string& precision) {
  c.add_option("--target", target, "Where to verify: host, cuda or auto (a GPU if there is one)")->check(CLI::IsMember({"auto", "host", "cuda"}));
  c.add_option("--precision", precision, "Precision class")->check(CLI::IsMember({"fp32", "default", "tf32", "bf16", "fp16"}));
}
void add_timed_calls(CLI::App& c, int& calls) {
  c.add_option("--timed-calls", calls, "On a GPU: how many calls to time; 0 checks correctness only")->check(CLI::Range(0, 10000));
}

void add_run(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<RunArguments>();
  CLI::App* c = app.add_subcommand("run", "Turn a PyTorch program into a verified CUDA program");
  c->add_option("input", options->input, "FILE.py (Model, get_inputs, get_init_inputs), module:callable, FILE.pt2 or a .stitch folder")->required();
  c->add_option("--out", options->out, "Output folder (default: out/NAME)");
  add_target_and_precision(*c, options->target, options->precision);
  c->add_option("--device", options->device, "Device description used for planning");
  c->add_option("--inputs", options->inputs_attribute, "For module:callable: the attribute that gives example inputs");
  c->add_option("--seed", options->seed, "Seed of weights and inputs");
  add_timed_calls(*c, options->timed_calls);
  c->add_flag("--fresh", options->fresh, "Start over instead of resuming an interrupted run");
  c->add_flag("--json", options->json, "Print the verdict as the last line of stdout");
  c->callback([&chosen, options] { chosen = [options] { return run_command(*options); }; });
}

void add_capture(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<CaptureArguments>();
  CLI::App* c = app.add_subcommand("capture", "Capture a PyTorch program as a .stitch bundle");
  c->add_option("input", options->input, "FILE.py, module:callable or FILE.pt2")->required();
  c->add_option("-o,--out", options->out, "Bundle to write, X.stitch")->required();
  c->add_option("--inputs", options->inputs_attribute, "For module:callable: the attribute that gives example inputs");
  c->add_option("--seed", options->seed, "Seed of weights and inputs");
  c->add_option("--cases", options->cases, "How many cases of inputs to store")->check(CLI::Range(1, 100));
  c->add_flag("--expected,!--no-expected", options->expected, "Run the module and store its outputs (default: when it is small)")->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  c->add_flag("--no-weights", options->no_weights, "Leave weights and cases out");
  c->callback([&chosen, options, c] {
    options->expected_given = c->count("--expected") > 0;
    chosen = [options] { return capture_command(*options); };
  });
}

void add_verify(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<VerifyArguments>();
  CLI::App* c = app.add_subcommand("verify", "Check a built program against its PyTorch program");
  c->add_option("candidate", options->candidate, "program.so, or the folder that holds it")->required();
  c->add_option("--bundle", options->bundle, "The captured program (default: program.stitch in the candidate's folder)");
  c->add_option("--source", options->source, "The PyTorch file (default: the one the bundle names); needed on a GPU");
  add_target_and_precision(*c, options->target, options->precision);
  c->add_option("--trials", options->trials, "Random input sets")->check(CLI::Range(5, 1000));
  add_timed_calls(*c, options->timed_calls);
  c->add_option("--time-budget", options->time_budget, "Seconds of checking after which input sets with special properties are left out (the verdict says so)")->check(CLI::Range(0.0, 1e6));
  c->add_option("--seed", options->seed, "Seed of the random inputs (default: a fresh one, recorded in the verdict)");
  c->add_option("--out", options->out, "Write the verdict to this file too");
  c->add_flag("--json", options->json, "Print the verdict as the last line of stdout");
  c->callback([&chosen, options] { chosen = [options] { return verify_command(*options); }; });
}

void add_build(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<BuildArguments>();
  CLI::App* c = app.add_subcommand("build", "Build the sources of a program folder again, after a change by hand");
  c->add_option("folder", options->folder, "The folder that stitchcuda run has written")->required();
  c->add_option("--target", options->target, "cuda, host, or auto: cuda where there is a CUDA compiler")->check(CLI::IsMember({"auto", "host", "cuda"}));
  c->callback([&chosen, options] { chosen = [options] { return build_command(*options); }; });
}

void add_suite(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<SuiteArguments>();
  CLI::App* suite = app.add_subcommand("suite", "Many problems in one run");
  suite->require_subcommand(1);
  CLI::App* c = suite->add_subcommand("kernelbench", "The problems of KernelBench: a row each, and a summary");
  c->add_option("--kernelbench-root", options->root, "A checkout of KernelBench")->required();
  c->add_option("--level", options->levels, "Level, or several: 1,2,3")->required()->delimiter(',')->check(CLI::Range(1, 9));
  c->add_option("--problems", options->problems, "Only these, by number: 1,5-9");
  c->add_option("--step", options->step, "The last step to do")->check(CLI::IsMember({"capture", "plan", "code", "build", "verify"}));
  c->add_option("--out", options->out, "Output folder: a folder a problem, suite.json and suite.md")->required();
  c->add_option("--jobs", options->jobs, "Problems at a time (default: one per core)")->check(CLI::Range(1, 1024));
  add_target_and_precision(*c, options->target, options->precision);
  c->add_option("--device", options->device, "Device description used for planning");
  c->add_option("--seed", options->seed, "Seed of weights and inputs");
  c->add_option("--trials", options->trials, "Random input sets of a verification")->check(CLI::Range(5, 1000));
  c->add_option("--gpu-jobs", options->gpu_jobs, "Problems verified at a time on one GPU")->check(CLI::Range(1, 64));
  c->add_option("--capture-timeout", options->capture_timeout, "Seconds for the capture of one problem")->check(CLI::Range(1, 86400));
  c->add_option("--time-budget", options->time_budget, "Seconds of checking after which a verification leaves out special input sets")->check(CLI::Range(0.0, 1e6));
  c->add_option("--verify-timeout", options->verify_timeout, "Seconds for the verification of one problem")->check(CLI::Range(1, 86400));
  c->add_option("--stop-after", options->stop_after, "Seconds after which no further verification begins; 0 for no limit")->check(CLI::Range(0, 1 << 30));
  c->add_flag("--no-kernelbench-eval", options->no_kernelbench_eval, "Leave KernelBench's own evaluator out of the verify step");
  c->add_flag("--fresh", options->fresh, "Start over instead of keeping what an earlier run finished");
  c->add_flag("--json", options->json, "Print the summary as the last line of stdout");
  c->callback([&chosen, options] { chosen = [options] { return suite_command(*options); }; });
}

void add_rest(CLI::App& app, Command& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* doctor = app.add_subcommand("doctor", "What is on this machine and what is lost without it");
  doctor->add_flag("--json", *json, "Machine-readable output");
  doctor->callback([&chosen, json] { chosen = [json] { return doctor_command(*json); }; });

  CLI::App* runs = app.add_subcommand("runs", "Past runs");
  runs->require_subcommand(1);
  auto ids = std::make_shared<std::vector<int64_t>>();
  auto limit = std::make_shared<int>(20);
  CLI::App* list = runs->add_subcommand("list", "The newest runs");
  list->add_option("--limit", *limit, "How many")->check(CLI::Range(1, 100000));
  list->callback([&chosen, limit] { chosen = [limit] { return runs_list_command(*limit); }; });
  CLI::App* show = runs->add_subcommand("show", "One run, step by step");
  show->add_option("id", *ids, "Run number")->required()->expected(1);
  show->callback([&chosen, ids] { chosen = [ids] { return runs_show_command(ids->front()); }; });
  CLI::App* diff = runs->add_subcommand("diff", "Two runs side by side");
  diff->add_option("ids", *ids, "Two run numbers")->required()->expected(2);
  diff->callback([&chosen, ids] { chosen = [ids] { return runs_diff_command((*ids)[0], (*ids)[1]); }; });
}

}  // namespace

namespace {

int parse_and_run(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond the user's file size limit fails instead, and the message names the file
  CLI::App app{"stitchcuda: a PyTorch program in, a verified and faster CUDA program out"};
  app.set_version_flag("--version", std::string("stitchcuda ") + version());
  app.require_subcommand(1);
  Command chosen;
  add_run(app, chosen);
  add_capture(app, chosen);
  add_verify(app, chosen);
  add_build(app, chosen);
  add_suite(app, chosen);
  add_rest(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    std::string what = e.what();
    if (argc > 1 && *argv[1] != '-' && app.get_subcommands([&](const CLI::App* a) { return a->get_name() == argv[1]; }).empty())
      what = fmt::format("There is no command \"{}\"", argv[1]);
    while (what.ends_with('.')) what.pop_back();
    return print_error(what + "; run stitchcuda --help for usage."), 2;
  }
  const bool goes_on = app.got_subcommand("run") || app.got_subcommand("suite");
  handle_interrupts(goes_on ? " Run the same command again to go on from the last finished step." : "");
  const OnInterrupt sweep(remove_left_over_temp_folders);  // of its children, which are killed without a chance to tidy up
  try {
    const int code = chosen();
    stop_if_interrupted();
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    return print_error("The result could not be written to stdout; check the disk or the reader of the pipe."), 4;
  } catch (const std::bad_alloc&) {
    return print_error("Memory ran out; use a smaller program or a machine with more memory."), 4;
  } catch (const std::filesystem::filesystem_error& e) {
    return print_error(fmt::format("{} cannot be used: {}.", e.path1().string(), e.code().message())), 4;
  } catch (const std::system_error& e) {
    return print_error(fmt::format("The system refused a request: {}.", e.code().message())), 4;
  } catch (const std::exception& e) {
    return print_error(fmt::format("Internal error ({}); please report it with the command you ran.", e.what())), 5;
  }
}

}  // namespace

int main_entry(int argc, char** argv) {
  start_guardian(argv);
  const int code = parse_and_run(argc, argv);
  stop_guardian();
  return code;
}

}  // namespace stitch::ui
