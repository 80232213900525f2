#include "base/json_util.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json_full.h"

namespace stitch {
namespace {

constexpr size_t kMaxDepth = 200;
// An ordered object is searched from its start for every member, so a huge one costs hours.
constexpr size_t kMaxMembers = 50000;

struct Place {
  size_t line = 1, column = 1;
};
Place place_of(std::string_view text, size_t at) {
  const auto before = text.substr(0, std::min(at, text.size()));
  const size_t newline = before.rfind('\n');
  return {1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n')), 1 + before.size() - (newline == before.npos ? 0 : newline + 1)};
}

// A first pass that builds nothing: it finds syntax mistakes, depth bombs and what the real parser would silently merge.
class Inspector : public nlohmann::json_sax<Json> {
 public:
  Inspector(std::string_view text, std::string_view what) : text_(text), what_(what) {}
  Error error;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    auto& keys = keys_.back();
    if (!keys.insert(k).second) return refuse("{} gives \"{}\" twice in one object; remove one of them.", what_, k);
    return keys.size() <= kMaxMembers || refuse("{} holds an object of more than {} members; it is damaged.", what_, kMaxMembers);
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    const Place p = place_of(text_, position > 0 ? position - 1 : 0);
    refuse("{} is not valid JSON (line {}, column {}); it is damaged or cut off.", what_, p.line, p.column);
    error.detail = e.what();
    return false;
  }

 private:
  template <class... A>
  bool refuse(fmt::format_string<A...> format, A&&... a) {
    error = {ErrorKind::bad_input, fmt::format(format, std::forward<A>(a)...), {}};
    return false;
  }
  bool open() {
    keys_.emplace_back();
    return keys_.size() <= kMaxDepth || refuse("{} is nested deeper than {} levels; it is damaged.", what_, kMaxDepth);
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::string_view text_, what_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects (and, empty, the lists) that are open
};

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
  try {
    Inspector inspector(text, what);
    if (!Json::sax_parse(text, &inspector)) return tl::make_unexpected(std::move(inspector.error));
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return tl::make_unexpected(Error{ErrorKind::bad_input, fmt::format("{} is not valid JSON.", what), e.what()});
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
