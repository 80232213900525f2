#include "base/json_util.h"

#include <algorithm>

#include "base/json_full.h"

namespace stitch {
namespace {

constexpr int kMaxDepth = 200;

bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

Result<const Json*> member(const Json& j, std::string_view key, std::string_view what) {
  if (!j.is_object()) return fail(ErrorKind::bad_input, "{} must hold a JSON object.", what);
  const auto it = j.find(std::string(key));
  if (it == j.end()) return fail(ErrorKind::bad_input, "{} lacks \"{}\"; it is damaged or was not written by stitchcuda.", what, key);
  return &*it;
}

tl::unexpected<Error> wrong_type(std::string_view key, std::string_view what, const char* wanted) {
  return fail(ErrorKind::bad_input, "\"{}\" in {} must be {}.", key, what, wanted);
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what) {
  if (too_deep(text)) return fail(ErrorKind::bad_input, "{} is nested deeper than {} levels; it is damaged.", what, kMaxDepth);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    const size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());
    const auto before = text.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t newline = before.rfind('\n');
    const size_t column = 1 + at - (newline == before.npos ? 0 : newline + 1);
    return fail(ErrorKind::bad_input, "{} is not valid JSON (line {}, column {}); it is damaged or cut off.", what, line, column);
  } catch (const Json::exception& e) {
    return fail(ErrorKind::bad_input, "{} is not valid JSON ({}).", what, e.what());
  }
}

std::string dump(const Json& j, int indent) { return j.dump(indent, ' ', false, Json::error_handler_t::replace); }

Result<std::string> get_string(const Json& j, std::string_view key, std::string_view what) {
  STITCH_TRY(const Json* v, member(j, key, what));
  if (!v->is_string()) return wrong_type(key, what, "a string");
  return v->get<std::string>();
}
Result<int64_t> get_integer(const Json& j, std::string_view key, std::string_view what) {
  STITCH_TRY(const Json* v, member(j, key, what));
  if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > INT64_MAX)) return wrong_type(key, what, "an integer");
  return v->get<int64_t>();
}
Result<double> get_number(const Json& j, std::string_view key, std::string_view what) {
  STITCH_TRY(const Json* v, member(j, key, what));
  if (!v->is_number()) return wrong_type(key, what, "a number");
  return v->get<double>();
}
Result<bool> get_bool(const Json& j, std::string_view key, std::string_view what) {
  STITCH_TRY(const Json* v, member(j, key, what));
  if (!v->is_boolean()) return wrong_type(key, what, "true or false");
  return v->get<bool>();
}
Result<const Json*> get_array(const Json& j, std::string_view key, std::string_view what) {
  STITCH_TRY(const Json* v, member(j, key, what));
  if (!v->is_array()) return wrong_type(key, what, "a list");
  return v;
}
Result<const Json*> get_object(const Json& j, std::string_view key, std::string_view what) {
  STITCH_TRY(const Json* v, member(j, key, what));
  if (!v->is_object()) return wrong_type(key, what, "an object");
  return v;
}

}  // namespace stitch
