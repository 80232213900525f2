#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "code/coder.h"

namespace stitch::code {
namespace {

// A Python string literal: JSON's escapes are Python's too, and what needs none stays UTF-8 (an escaped surrogate pair would be two characters).
std::string python_string(const std::string& s) { return Json(s).dump(-1, ' ', false, Json::error_handler_t::replace); }

void fill(std::string& text, const std::string& key, const std::string& value) {
  const std::string mark = "@" + key + "@";
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + value.size())) text.replace(at, mark.size(), value);
}

}  // namespace

Result<std::string> write_model_new(const ir::Bundle& b, const std::string& reference_source, const std::string& program_folder) {
  STITCH_TRY(std::string text, read_file(source_root() / "python/stitchcuda/templates/model_new.py.in"));
  Json random = Json::array(), names = Json::array();
  for (const ir::TensorInfo& i : b.inputs)
    if (i.random && i.generator)
      random.push_back({{"name", i.name}, {"kind", i.generator->kind}, {"a", i.generator->a}, {"b", i.generator->b}, {"shape", i.type.shape}, {"dtype", std::string(ir::name_of(i.type.dtype))}});
  for (const ir::TensorInfo& w : b.weights) names.push_back(w.name);
  const auto literal = [](const Json& j) { return python_string(dump(j, -1)); };
  // What holds the module: other kinds (an exported program) are no Python text.
  const bool has_source = !reference_source.empty() && (b.origin.kind == "kernelbench" || b.origin.kind == "callable") && b.origin.file.ends_with(".py");
  std::error_code ec;
  const auto absolute = [&](const fs::path& p) { return p.empty() ? std::string() : fs::absolute(p, ec).lexically_normal().string(); };
  fill(text, "FOLDER", python_string(program_folder));
  fill(text, "BUNDLE", python_string(absolute(b.folder)));
  fill(text, "NAME", python_string(b.name));
  fill(text, "MODE", python_string(b.mode));
  fill(text, "INPUT_SPEC", literal(b.input_spec));
  fill(text, "OUTPUT_SPEC", literal(b.output_spec));
  fill(text, "RANDOM_INPUTS", literal(random));
  fill(text, "WEIGHT_NAMES", literal(names));
  fill(text, "REFERENCE_FILE", python_string(has_source ? absolute(b.origin.file) : ""));
  fill(text, "REFERENCE_NAME", python_string(b.origin.kind == "callable" ? b.name : "Model"));
  fill(text, "REFERENCE_SOURCE", has_source ? python_string(reference_source) : "None");
  return text;
}

}  // namespace stitch::code
