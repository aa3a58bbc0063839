"""Writes tests/golden/tokenizers/: small tokenizers and the ids that Hugging Face's library gives.

Each folder has a tokenizer.json, trained here on the sentences below, and cases.json:

  versions   the library that made it
  cases      a list of {text, ids, plain, special, decoded}:
               ids      encode(text, add_special_tokens=False)
               plain    the same by a tokenizer without added tokens
               special  encode(text, add_special_tokens=True)
               decoded  decode(ids, skip_special_tokens=False)

Text is written with \\u escapes. Usage: python tests/golden/make_tokenizers.py   (README.md says what to
install)
"""

import json
import pathlib

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

ROOT = pathlib.Path(__file__).parent / "tokenizers"

SENTENCES = """
The quick brown fox jumps over the lazy dog, and it didn't stop: they've seen it'll run again.
Tokenizers cut text into pieces; the pieces become numbers, and the numbers become vectors.
It was the best of times, it was the worst of times, it was the age of wisdom.
def main(argument):\n\treturn [value ** 2 for value in range(10) if value % 3 == 0]  # squares
for (int i = 0; i < 1024; ++i) { sum += weights[i] * inputs[i]; }
Der Fluss fließt über die Wiese, und die Vögel singen schön im Frühling.
L'élève naïf a mangé des crêpes à la crème près du château.
El niño pequeño corrió hacia la montaña mañana por la mañana.
Быстрая коричневая лиса прыгает через ленивую собаку. Привет, мир!
Η γρήγορη καφέ αλεπού πηδά πάνω από το τεμπέλικο σκυλί.
敏捷的棕色狐狸跳过了懒狗。今天天气很好,我们去公园散步吧。
素早い茶色の狐がのろまな犬を飛び越える。カタカナとひらがな。
다람쥐 헌 쳇바퀴에 타고파. 안녕하세요 세계.
الثعلب البني السريع يقفز فوق الكلب الكسول. مرحبا بالعالم
השועל החום המהיר קופץ מעל הכלב העצלן. שלום עולם
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। नमस्ते दुनिया
สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ
1234567 3.14159 2026-11-20 100,000 x1 y22 z333
""".strip().split("\n")

TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", "  leading and trailing  ",
    "I'll can't WE'RE they've 'S 'LL \u017f'\u017f", "1234567 3.14159 2026-11-20 \u0661\u0662\u0663\u0664 \u00bd\u00b2\u2167",
    "def f(x):\n\treturn x**2  # square\n\n\n", "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m",
    "cafe\u0301 A\u030angstro\u0308m \u0041\u0327\u030a q\u0307\u0323 \u1e0b\u0323", "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3068\u4e2d\u6587\u6587\u672c", "\u304c\u304b\u3099 \u30d1\u30cf\u309a",
    "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f1eb\U0001f1f7 \u2764\ufe0f",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u200f(\u05d0)\u200e \u202bx\u202c",
    "\u0924\u0947\u091c\u093c \u0932\u094b\u092e\u0921\u093c\u0940 \u0e19\u0e49\u0e33", "a\r\nb\rc\n\n  \n d\r\n\r\n\te",
    "\u00a0\u2003x\u3000y\u2028z\u1680\u180e\u200b\ufeffw", "tabs\t\t\tand    spaces   \n   mixed \t \n",
    "HTTPServer iPhone McDonald \u01c5\u01c8 \u01f2abc \u02b0\u02b2 \u00aa\u00ba", "a_b-c/d\\e|f~g`h@i#j$k%l^m&n*o(p)q",
    "https://example.org/a?b=c&d=%20#e", "!!!???... --- === //// \r\n////\n", "\u2581\u2581x \u2581 y\u2581",
    "<s>a</s> <s> b </s>c", "x<unk>y <0x41><0x0A>", "<|begin_of_text|>Hi<|end_of_text|>", "<|begin_of_text|><|begin_of_text|>",
    "<mask>", "a <mask> b", "<mas <masx> <mask>>", "a  <mask>  b<mask>", "word wordy aword word.", "  <tool>  x</tool>\n\n<tool>",
    "\u00c9t\u00e9 E\u0301te\u0301 \u00c9T\u00c9", "\x00\x01\x7f\x80\x9f\xad", "\ufffd\uffff\U0010ffff\ue000", "\u0378\u0530",
    "x" * 300, " " * 70 + "x" + "\n" * 40, "ab" * 100 + " " + "\u65e5" * 50, "aA" * 40 + "Aa" * 40,
    " ".join(SENTENCES[:3]), "\n".join(SENTENCES),
]

O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def trainer(size, **options):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)


def bytes_of_gpt2():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def llama2(metaspace):
    """BPE over characters with byte fallback. `metaspace`: by a pre-tokenizer, else by normalizers,
    as the published file does."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    specials = ["<unk>", "<s>", "</s>"]
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made.train_from_iterator(SENTENCES[:9], trainer(800, special_tokens=specials + bytes_))
    if metaspace:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        made.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="first", split=False), decoders.ByteFallback(), decoders.Fuse()])
    else:
        made.pre_tokenizer = None
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    # Training made all 259 of them added tokens; the published file has the first three.
    file = json.loads(made.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if token["id"] < 3]
    return file


def gemma3():
    """As Llama 2's, without a space before the text, and with a splitter whose spaces are gone by then."""
    file = llama2(metaspace=False)
    made = Tokenizer.from_str(json.dumps(file))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return json.loads(made.to_str())


def llama4():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(SENTENCES, trainer(1000, initial_alphabet=bytes_of_gpt2()))
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))])])
    return json.loads(made.to_str())


def added():
    """Every flag of added tokens, NFC, and merges that are ignored for whole pieces."""
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CL100K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(SENTENCES, trainer(700, initial_alphabet=bytes_of_gpt2()))
    made.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("<tool>", rstrip=True),
                     AddedToken("</tool>", normalized=False), AddedToken("word", single_word=True),
                     AddedToken("E\u0301t\u00e9", normalized=True), AddedToken("<mas", normalized=False)])
    made.add_special_tokens(["<|begin_of_text|>"])
    # Whole pieces in the vocabulary that no merge makes.
    file = json.loads(made.to_str())
    return file


def prefixed():
    """GPT-2's ByteLevel with a space before the text, after Digits."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(SENTENCES, trainer(600, initial_alphabet=bytes_of_gpt2()))
    made.add_tokens([AddedToken("<mask>", normalized=False)])
    return json.loads(made.to_str())


def metaspace_words():
    """Metaspace that cuts words, without byte fallback: unknown characters, fused or not."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(",", "merged_with_previous"), pre_tokenizers.Metaspace(prepend_scheme="always")])
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(SENTENCES[:8], trainer(400, special_tokens=["<unk>"]))
    return json.loads(made.to_str())


def write(name, file):
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(file, ensure_ascii=True, indent=1)
    (folder / "tokenizer.json").write_text(text + "\n")
    made = Tokenizer.from_str(text)
    without = Tokenizer.from_str(json.dumps({**file, "added_tokens": []}))
    cases = [{
        "text": case,
        "ids": made.encode(case, add_special_tokens=False).ids,
        "plain": without.encode(case, add_special_tokens=False).ids,
        "special": made.encode(case, add_special_tokens=True).ids,
        "decoded": made.decode(made.encode(case, add_special_tokens=False).ids, skip_special_tokens=False),
    } for case in TEXTS]
    written = {"versions": {"tokenizers": tokenizers.__version__}, "cases": cases}
    (folder / "cases.json").write_text(json.dumps(written, ensure_ascii=True, indent=None) + "\n")


def main():
    write("llama2", llama2(metaspace=False))
    write("llama2_metaspace", llama2(metaspace=True))
    write("gemma3", gemma3())
    write("llama4", llama4())
    write("added", added())
    write("prefixed", prefixed())
    write("metaspace_words", metaspace_words())


if __name__ == "__main__":
    main()
