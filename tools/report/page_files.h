// The files of the report's page, as text in the program. CMake writes the definitions.
#pragma once

#include <string_view>

namespace tessera {

extern const std::string_view kPageHtml;
extern const std::string_view kStyleCss;
extern const std::string_view kChartsJs;
extern const std::string_view kPageJs;

}  // namespace tessera
