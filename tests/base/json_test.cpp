#include "base/json_util.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json_full.h"
#include "base/json_schema.h"

namespace stitch {
namespace {

TEST(Json, MistakesHaveLineAndColumn) {
  const auto r = parse_json("{\n  \"a\": ]\n}", "x.json");
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("line 2, column 8"), std::string::npos) << r.error().message;
  EXPECT_FALSE(parse_json(std::string(100000, '['), "bomb"));
  EXPECT_FALSE(parse_json("", "empty"));
}

TEST(Json, TypedMembers) {
  const Json j = *parse_json(R"({"s":"x","i":3,"f":1.5,"b":true,"big":18446744073709551615})", "t");
  EXPECT_EQ(*get_string(j, "s", "t"), "x");
  EXPECT_EQ(*get_integer(j, "i", "t"), 3);
  EXPECT_FALSE(get_integer(j, "f", "t"));
  EXPECT_FALSE(get_integer(j, "big", "t"));
  EXPECT_FALSE(get_string(j, "missing", "t"));
  EXPECT_EQ(dump(Json(std::string("\xff")), -1).find("\xff"), std::string::npos);
}

TEST(Json, SchemaErrorsNameThePath) {
  const Json schema = *parse_json(R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}}})", "s");
  EXPECT_TRUE(validate_json(schema, *parse_json(R"({"a":[1,2]})", "v")));
  const Status s = validate_json(schema, *parse_json(R"({"a":[1,"x"]})", "v"));
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().message.find("at /a/1 "), std::string::npos) << s.error().message;
}

TEST(Json, WhatTheParserWouldMergeIsRefused) {
  const auto r = parse_json(R"({"a":1,"b":[{"a":2,"a":3}]})", "x.json");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message, "x.json gives \"a\" twice in one object; remove one of them.");
  EXPECT_TRUE(parse_json(R"([{"a":1},{"a":{"a":2}}])", "x"));
}

TEST(Json, BombsAreRefusedQuickly) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(200), "x"));
  EXPECT_NE(parse_json(nested(201), "x").error().message.find("nested deeper than 200"), std::string::npos);
  std::string wide = "{";
  for (int i = 0; i < 200000; ++i) wide += fmt::format("{}\"k{}\":0", i ? "," : "", i);
  EXPECT_NE(parse_json(wide + "}", "x").error().message.find("more than 50000 members"), std::string::npos);
}

TEST(Json, RubbishNeverThrows) {
  for (const char* text : {"{", "[1,", "\"\xff\"", "\"\\ud800\"", "1e999", "nul", "[1]x", "{1:2}", "\xef\xbb", "-"}) {
    const auto r = parse_json(text, "t");
    ASSERT_FALSE(r) << text;
    EXPECT_EQ(r.error().kind, ErrorKind::bad_input);
    EXPECT_NE(r.error().message.find("line 1, column"), std::string::npos) << r.error().message;
  }
}

TEST(Json, GettersNameTheKeyAndTheType) {
  const Json j = *parse_json(R"({"s":1,"l":{},"o":[]})", "t");
  EXPECT_EQ(get_string(j, "s", "t").error().message, "\"s\" in t must be a string.");
  EXPECT_EQ(get_array(j, "l", "t").error().message, "\"l\" in t must be a list.");
  EXPECT_EQ(get_object(j, "o", "t").error().message, "\"o\" in t must be an object.");
  EXPECT_FALSE(get_bool(j, "s", "t"));
  EXPECT_FALSE(get_number(Json::array(), "s", "t"));
  EXPECT_EQ(dump(Json{{"x", std::numeric_limits<double>::infinity()}}, -1), "{\"x\":null}");
}

// Every keyword that the project's schemas use.
TEST(Schema, EachRuleIsChecked) {
  const struct { const char* schema; const char* good; const char* bad; } cases[] = {
      {R"({"type":"integer"})", "1", "\"1\""},
      {R"({"type":["string","null"]})", "null", "1"},
      {R"({"required":["a"]})", R"({"a":1})", "{}"},
      {R"({"properties":{"a":{}},"additionalProperties":false})", R"({"a":1})", R"({"b":1})"},
      {R"({"enum":["a","b"]})", "\"a\"", "\"c\""},
      {R"({"const":3})", "3", "4"},
      {R"({"minimum":0,"maximum":2})", "2", "3"},
      {R"({"minItems":1})", "[1]", "[]"},
      {R"({"minLength":1})", "\"x\"", "\"\""},
      {R"({"pattern":"^%[0-9]+$"})", "\"%12\"", "\"12\""},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", "1", "true"},
      {R"({"anyOf":[{"minimum":5},{"maximum":1}]})", "0", "3"},
      {R"({"$defs":{"n":{"type":"integer"}},"items":{"$ref":"#/$defs/n"}})", "[1]", "[\"x\"]"},
  };
  for (const auto& c : cases) {
    const Json schema = *parse_json(c.schema, "schema");
    EXPECT_TRUE(validate_json(schema, *parse_json(c.good, "good"))) << c.schema;
    const Status s = validate_json(schema, *parse_json(c.bad, "bad"));
    ASSERT_FALSE(s) << c.schema;
    EXPECT_EQ(s.error().kind, ErrorKind::bad_input) << s.error().message;
  }
}

TEST(Schema, PointersAreEscaped) {
  const Json schema = *parse_json(R"({"properties":{"a/b~c":{"type":"integer"}}})", "s");
  EXPECT_NE(validate_json(schema, *parse_json(R"({"a/b~c":"x"})", "v")).error().message.find("at /a~1b~0c "), std::string::npos);
  EXPECT_NE(validate_json(*parse_json(R"({"type":"integer"})", "s"), Json("x")).error().message.find("at the top"), std::string::npos);
}

TEST(Schema, ABrokenSchemaIsOurFault) {
  EXPECT_EQ(validate_json(*parse_json(R"({"type":3})", "s"), Json(1)).error().kind, ErrorKind::internal);
}

}  // namespace
}  // namespace stitch
