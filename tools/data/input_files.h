// The input files of `tessera prepare`.
#pragma once

#include <filesystem>
#include <vector>

namespace tessera {

/// All files of `inputs` in order. A folder becomes
///
///   - the data files of a data set, if `datasets` saved it there (save_to_disk), or it was downloaded from
///     Hugging Face's hub: files such as data/train-00000-of-00002.parquet. Of several splits it is `train`;
///   - otherwise the files below it that are documents (documents.h) or tables, packed or not, sorted by path.
///     Hidden files and folders are left out.
///
/// Raises Error if an input does not exist, a folder has no such file, or files of a data set are missing.
std::vector<std::filesystem::path> find_text_files(
    const std::vector<std::filesystem::path>& inputs);

}  // namespace tessera
