// The headers that all tests share are precompiled with this file (tests/CMakeLists.txt).
