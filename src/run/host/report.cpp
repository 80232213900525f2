#include "run/host/report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"

namespace stitch::host {
namespace {

struct Place {
  std::string file;
  int line = 0;
};

// Frames of the emulator itself are never what the user wants to see.
bool is_emulator(std::string_view file) { return file.find("stitch/host/") != std::string_view::npos; }

// "path:12" or "path:12:7", possibly followed by " (discriminator 2)".
std::optional<Place> parse_place(std::string_view text) {
  text = text.substr(0, text.find(" (disc"));
  for (int tries = 0; tries < 2; ++tries) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == text.size()) return {};
    const std::string_view digits = text.substr(colon + 1);
    if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
    const std::string_view rest = text.substr(0, colon);
    const size_t before = rest.rfind(':');
    const bool column = before != std::string_view::npos && before + 1 < rest.size() &&
                        std::all_of(rest.begin() + static_cast<long>(before) + 1, rest.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!column) return Place{std::string(rest), std::atoi(std::string(digits).c_str())};
    text = rest;
  }
  return {};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

using Lines = std::map<uint64_t, Place>;

// One addr2line process for all addresses of a module. An address that has no line is left out.
Result<Lines> look_up(const std::string& module, const std::vector<uint64_t>& addresses) {
  ProcessSpec spec;
  spec.argv = {"addr2line", "-a", "-i", "-e", module};
  for (uint64_t a : addresses) spec.argv.push_back(fmt::format("{:#x}", a));
  STITCH_TRY(const ProcessResult result, run_process(spec));
  if (!result.ok()) return fail(ErrorKind::environment, "addr2line failed on {}: {}", module, result.err);
  Lines out;
  uint64_t current = 0;
  for (std::string_view line : lines_of(result.out)) {
    if (line.starts_with("0x")) {
      current = std::strtoull(std::string(line).c_str(), nullptr, 16);
      continue;
    }
    if (const auto place = parse_place(line); place && !is_emulator(place->file)) out.try_emplace(current, *place);
  }
  return out;
}

std::optional<Index3> index_of(const Json& j, const char* key) {
  const auto at = j.find(key);
  if (at == j.end() || !at->is_array() || at->size() != 3) return {};
  Index3 out{};
  for (size_t i = 0; i < 3; ++i) out[i] = (*at)[i].is_number_unsigned() ? (*at)[i].get<unsigned>() : 0;
  return out;
}
std::string text_of(const Json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_string() ? at->get<std::string>() : "";
}
uint64_t number_of(const Json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

struct RawFault {
  Fault fault;
  std::string module;
  uint64_t pc = 0, other_pc = 0;
};

RawFault to_fault(const Json& j) {
  RawFault raw;
  Fault& f = raw.fault;
  f.kind = text_of(j, "kind");
  f.message = text_of(j, "message");
  f.file = text_of(j, "file");
  f.line = static_cast<int>(number_of(j, "line"));
  f.other_file = text_of(j, "other_file");
  f.other_line = static_cast<int>(number_of(j, "other_line"));
  f.kernel = text_of(j, "kernel");
  f.block = index_of(j, "block");
  f.thread = index_of(j, "thread");
  f.other_thread = index_of(j, "other_thread");
  raw.module = text_of(j, "module");
  raw.pc = number_of(j, "pc");
  raw.other_pc = number_of(j, "other_pc");
  return raw;
}

Status symbolise(std::vector<RawFault>& faults) {
  std::map<std::string, std::vector<uint64_t>> addresses;
  for (const RawFault& f : faults)
    for (uint64_t pc : {f.pc, f.other_pc})
      if (pc && !f.module.empty()) addresses[f.module].push_back(pc);
  for (const auto& [module, list] : addresses) {
    STITCH_TRY(const Lines lines, look_up(module, list));
    for (RawFault& f : faults) {
      if (f.module != module) continue;
      if (const auto at = lines.find(f.pc); f.pc && at != lines.end())
        f.fault.file = at->second.file, f.fault.line = at->second.line;
      if (const auto at = lines.find(f.other_pc); f.other_pc && at != lines.end())
        f.fault.other_file = at->second.file, f.fault.other_line = at->second.line;
    }
  }
  return {};
}

// ---- AddressSanitizer text ----

std::string kind_of(std::string_view type) {
  if (type.ends_with("buffer-overflow") || type.ends_with("buffer-underflow") || type == "use-after-poison" ||
      type == "container-overflow")
    return "out_of_bounds";
  if (type == "heap-use-after-free" || type == "stack-use-after-return" || type == "stack-use-after-scope") return "use_after_free";
  if (type == "stack-overflow") return "stack_overflow";
  if (type == "attempting" || type == "bad-free") return "bad_free";
  return "illegal_address";
}

// "    #2 0x55d0 in name(args) file.cu:12" or, without debug info, "... (/path/program+0x1234)".
void read_frame(std::string_view line, RawFault& raw) {
  if (!raw.fault.file.empty()) return;
  const size_t space = line.rfind(' ');
  if (space == std::string_view::npos) return;
  const std::string_view last = line.substr(space + 1);
  if (last.starts_with('(')) {
    const size_t plus = last.find("+0x");
    if (raw.pc || plus == std::string_view::npos || last.find("/libasan") != std::string_view::npos) return;
    raw.module = std::string(last.substr(1, plus - 1));
    raw.pc = std::strtoull(std::string(last.substr(plus + 1)).c_str(), nullptr, 16);
    return;
  }
  const auto place = parse_place(last);
  if (!place || is_emulator(place->file) || place->file.find("/libsanitizer/") != std::string::npos) return;
  raw.fault.file = place->file;
  raw.fault.line = place->line;
}

std::optional<RawFault> parse_sanitizer(std::string_view text) {
  constexpr std::string_view marker = "ERROR: AddressSanitizer: ";
  const size_t at = text.find(marker);
  if (at == std::string_view::npos) return {};
  RawFault raw;
  std::string type, access, located;
  bool first_stack = true;
  for (std::string_view line : lines_of(text.substr(at + marker.size()))) {
    if (type.empty()) {
      type = std::string(line.substr(0, line.find_first_of(" :")));
      continue;
    }
    if (access.empty() && (line.starts_with("READ of size") || line.starts_with("WRITE of size")))
      access = std::string(line.substr(0, line.find(" at ")));
    const size_t frame = line.find_first_not_of(' ');
    const bool is_frame = frame != std::string_view::npos && line[frame] == '#';
    if (is_frame && first_stack) read_frame(line, raw);
    if (line.empty()) first_stack = false;  // later stacks say where memory was allocated or freed
    if (located.empty())
      if (const size_t l = line.find(" is located "); l != std::string_view::npos) {
        located = std::string(line.substr(l + 12));
        located = located.substr(0, located.find(" [0x"));
      }
  }
  raw.fault.kind = kind_of(type);
  raw.fault.message = type == "use-after-poison" ? "outside the block's shared memory variables" : type;
  if (!access.empty()) raw.fault.message = access + ", " + raw.fault.message;
  if (!located.empty()) raw.fault.message += ", " + located;
  return raw;
}

}  // namespace

std::string to_string(const Fault& f) {
  std::string out;
  if (!f.file.empty()) out += fmt::format("{}:{}: ", f.file, f.line);
  out += f.kind + ": " + f.message;
  if (f.other_line) out += fmt::format(" (line {})", f.other_line);
  std::string where = f.kernel;
  if (f.block) where += fmt::format("{}block {},{},{}", where.empty() ? "" : ", ", (*f.block)[0], (*f.block)[1], (*f.block)[2]);
  if (f.thread) where += fmt::format("{}thread {},{},{}", where.empty() ? "" : ", ", (*f.thread)[0], (*f.thread)[1], (*f.thread)[2]);
  return where.empty() ? out : out + " [" + where + "]";
}

Result<std::vector<Fault>> read_faults(const fs::path& report, std::string_view stderr_text) {
  std::vector<RawFault> raw;
  std::optional<RawFault> sanitizer = parse_sanitizer(stderr_text);
  if (!report.empty() && fs::exists(report)) {
    STITCH_TRY(const std::string text, read_file(report));
    for (std::string_view line : lines_of(text)) {
      if (line.empty()) continue;
      STITCH_TRY(const Json json, parse_json(line, report.string()));
      RawFault f = to_fault(json);
      if (f.fault.kind == "address_sanitizer" && sanitizer) {
        sanitizer->fault.kernel = f.fault.kernel;
        sanitizer->fault.block = f.fault.block;
        sanitizer->fault.thread = f.fault.thread;
        continue;
      }
      raw.push_back(std::move(f));
    }
  }
  if (sanitizer) raw.push_back(std::move(*sanitizer));
  STITCH_CHECK_OK(symbolise(raw));
  std::vector<Fault> out;
  for (RawFault& f : raw) out.push_back(std::move(f.fault));
  return out;
}

}  // namespace stitch::host
