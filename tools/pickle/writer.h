// Pickle: Python's format for values, written piece by piece.
//
// A value is the text of the opcodes that leave it on the reader's stack, so a list is made of the texts of its items.
// Opcodes are those of protocol 2 (PEP 307; Python's Lib/pickletools.py describes each).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace pickled {
std::string none();
std::string boolean(bool value);
std::string whole(std::int64_t value);
std::string real(double value);
std::string text(std::string_view value);
std::string tuple(const std::vector<std::string>& items);
std::string list(const std::vector<std::string>& items);
/// `items`: keys and values in turn.
std::string dict(const std::vector<std::string>& items);
/// A class or function: "torch", "Size".
std::string global(std::string_view module, std::string_view name);
/// callable(*arguments): `arguments` is a tuple.
std::string call(const std::string& callable, const std::string& arguments);
/// An object of a class with this state, as a rule a dict of its members.
std::string object(const std::string& type, const std::string& state);
/// The object that the reader knows by this id.
std::string persistent(const std::string& id);
/// The whole file.
std::string finished(const std::string& value);
}  // namespace pickled

/// `value` as Python's pickle.load reads it: objects become dicts, lists lists, null None. Whole numbers
/// have at most 64 bits, as in JSON.
std::string to_pickle(const nlohmann::ordered_json& value);

}  // namespace tessera
