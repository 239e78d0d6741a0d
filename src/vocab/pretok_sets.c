/*
 * pretok_sets.c: the pattern sets of pre-tokenization, one row each, and the names of
 * tokenizer.ggml.pre that choose them.
 *
 * Patterns run over a class text: one byte for each code point. ASCII stands for itself, other
 * whitespace is 0B, all else is a byte for its class: N D1, L D2, P D3, M D4, S D5, the rest D0.
 * Where a step names point sets, the code points of set k are E0 + 2k (letters) or E1 + 2k. So
 * PCRE2 runs on bytes, without UTF, and its version of Unicode does not matter. Whitespace is in no
 * set.
 */
#include "vocab/pretok.h"

/* Classes, to be written inside brackets. */
#define N  "0-9\\xD1"
#define L  "A-Za-z\\xD2"
#define P  "!-#%-*,-/:;?@\\[-\\]_{}\\xD3"
#define M  "\\xD4"
#define S  "$+<->^`|~\\xD5"
#define UP "A-Z\\xD2" /* letters but a-z */
#define LO "a-z\\xD2" /* letters but A-Z */
/* The bytes of point set k, letters and others. */
#define SET_0 "\\xE0\\xE1"
#define SET_1 "\\xE2\\xE3"
#define SET_2 "\\xE4\\xE5"
#define SET_3 "\\xE6\\xE7"

#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define SPACES      "\\s+(?!\\S)|\\s+"
#define BREAKS      "\\s*[\\r\\n]+|"
#define WORD        "[^\\r\\n" L N "]?[" L "]+|"
#define MARKS       " ?[^\\s" L N "]+"

#define GPT2                 "'s|'t|'re|'ve|'m|'ll|'d| ?[" L "]+| ?[" N "]+|" MARKS "|" SPACES
#define LLAMA3_WITH(numbers) CONTRACTION "|" WORD numbers "|" MARKS "[\\r\\n]*|" BREAKS SPACES
#define QWEN2                LLAMA3_WITH("[" N "]")
#define DEEPSEEK3_WORD       "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n" L P S "]?[" L M "]+| ?[" P S "]+"
#define DEEPSEEK3            DEEPSEEK3_WORD "[\\r\\n]*|" BREAKS SPACES
#define BLOOM                " ?[^\\s(|.,!?)" SET_0 "]+"
/* Words of capitals and small letters; `m`: a class that belongs to both. */
#define CASED(m, tail)                                                                             \
    "[^\\r\\n" L N "]?[" UP m "]*[" LO m "]+" tail "|[^\\r\\n" L N "]?[" UP m "]+[" LO m "]*" tail \
    "|"
#define GPT4O_END "|" MARKS "[\\r\\n/]*|" BREAKS SPACES
#define MARKED    "[^\\r\\n" L N "]?[" L M "]+(?:" CONTRACTION ")?|"

static const uint32_t llm_letters_pairs[][2] = {
    {0x00B5, 0x00B5},   {0x00C0, 0x00D6},   {0x00D8, 0x00F6},   {0x00F8, 0x01BA},
    {0x01BC, 0x01BF},   {0x01C4, 0x0293},   {0x0295, 0x02AF},   {0x0370, 0x0373},
    {0x0376, 0x0376},   {0x0377, 0x0377},   {0x037B, 0x037D},   {0x037F, 0x037F},
    {0x0386, 0x0386},   {0x0388, 0x038A},   {0x038C, 0x038C},   {0x038E, 0x03A1},
    {0x03A3, 0x03F5},   {0x03F7, 0x0481},   {0x048A, 0x052F},   {0x0531, 0x0556},
    {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},
    {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},
    {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},
    {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},
    {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},
    {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},
    {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212A, 0x212D},
    {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},   {0x2145, 0x2149},
    {0x214E, 0x214E},   {0x2183, 0x2183},   {0x2184, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},
    {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},
    {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3},
    {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF},
    {0x1E900, 0x1E943},
};
static const uint32_t beyond_latin_pairs[][2] = {
    {0x0800, 0x167F}, {0x1681, 0x1FFF}, {0x200B, 0x2027}, {0x202A, 0x202E},
    {0x2030, 0x205E}, {0x2060, 0x2FFF}, {0x3001, 0x9FA5}, {0xAC00, 0xD7FF},
};
static const uint32_t llm_marks_pairs[][2] = {
    {0x2018, 0x201F}, {0x3001, 0x3001}, {0x3002, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};
static const uint32_t kana_han_pairs[][2] = {
    {0x3040, 0x30FF},
    {0x4E00, 0x9FA5},
};
static const uint32_t hangul_pairs[][2] = {
    {0x3131, 0x318E},
    {0xAC00, 0xD7A3},
};
static const uint32_t cjk_marks_pairs[][2] = {
    {0x2014, 0x2014}, {0x2018, 0x2018}, {0x2019, 0x2019}, {0x201C, 0x201C},
    {0x201D, 0x201D}, {0x2026, 0x2026}, {0x3001, 0x303F}, {0xFE30, 0xFE4F},
    {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1A}, {0xFF1B, 0xFF1B},
};
static const uint32_t bopomofo_pairs[][2] = {
    {0x3105, 0x312F},
};
static const uint32_t afmoe_scripts_pairs[][2] = {
    {0x0E40, 0x0EFF}, {0x1000, 0x109F}, {0x1100, 0x11FF}, {0x1780, 0x17FF}, {0x2F00, 0x2FDF},
    {0x3040, 0x30FF}, {0x3400, 0x4DBF}, {0x4E00, 0xFAFF}, {0xFF65, 0xFF9F},
};
static const uint32_t bloom_marks_pairs[][2] = {
    {0x060C, 0x060C}, {0x06D4, 0x06D4}, {0x0964, 0x0964}, {0x2026, 0x2026},
    {0x3001, 0x3001}, {0x3002, 0x3002}, {0xFF0C, 0xFF0C},
};
static const uint32_t han_pairs[][2] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
    {0x20000, 0x2A6DF}, {0x2A700, 0x2EBEF}, {0x2F800, 0x2FA1F},
};

#define POINT_SET(name)                                                                            \
    static const qn_point_set name = {name##_pairs[0], sizeof name##_pairs / sizeof name##_pairs[0]}
POINT_SET(llm_letters);
POINT_SET(beyond_latin);
POINT_SET(llm_marks);
POINT_SET(kana_han);
POINT_SET(hangul);
POINT_SET(cjk_marks);
POINT_SET(bopomofo);
POINT_SET(afmoe_scripts);
POINT_SET(bloom_marks);
POINT_SET(han);

#define STEP(...)                                                                                  \
    {                                                                                              \
        QN_PRETOK_PATTERN, __VA_ARGS__,                                                            \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }
#define WITH(set, ...)                                                                             \
    {                                                                                              \
        QN_PRETOK_PATTERN, __VA_ARGS__,                                                            \
        {                                                                                          \
            &set                                                                                   \
        }                                                                                          \
    }
#define BUILTIN(kind)                                                                              \
    {                                                                                              \
        kind, NULL,                                                                                \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }

static const qn_pretok_set sets[] = {
    {"gpt2", {STEP(GPT2)}, 1},
    {"llama3", {STEP(LLAMA3_WITH("[" N "]{1,3}"))}, 1},
    {"qwen2", {STEP(QWEN2)}, 1},
    {"bailing", {STEP(QWEN2)}, 1},
    {"qwen35",
     {STEP(CONTRACTION "|[^\\r\\n" L N "]?[" L M "]+|[" N "]| ?[^\\s" L M N
                       "]+[\\r\\n]*|" BREAKS SPACES)},
     1},
    {"ufakzeka", {STEP(WORD "[" N "]|" MARKS "[\\r\\n]*|" BREAKS SPACES)}, 1},
    {"seed-coder", {STEP(CONTRACTION "|" WORD "[" N "]|" MARKS "|" BREAKS SPACES)}, 1},
    {"minicpm5", {STEP("[" N "]{1,3}"), STEP(LLAMA3_WITH("[" N "]+"))}, 2},
    {"exaone-moe",
     {STEP(CONTRACTION "|[^\\r\\n" L N "]?(?:[" L "][" M "]*+(?: [" L "][" M "]*+)*+)++|[" N
                       "]|" MARKS "[\\r\\n/]?|\\s*[\\r\\n]|" SPACES)},
     1},
    {"jais2", {STEP(LLAMA3_WITH("[" N "]{1,3}")), BUILTIN(QN_PRETOK_SPACE_RUNS)}, 2},
    {"starcoder", {STEP("[" N "]"), STEP(GPT2)}, 2},
    {"default",
     {STEP("[" P "$+<=>^~|]+"), STEP(GPT2), STEP("[" N "]+"), STEP("[0-9][0-9][0-9]")},
     4},
    {"falcon", {STEP("[" P "$+<=>^~|`]+"), STEP(GPT2), STEP("[0-9][0-9][0-9]")}, 3},
    {"tekken", {STEP(CASED("", "") "[" N "]" GPT4O_END)}, 1},
    {"gpt4o", {STEP(CASED("", "(?:" CONTRACTION ")?") "[" N "]{1,3}" GPT4O_END)}, 1},
    {"granite-multi", {STEP(CASED(M, "(?:" CONTRACTION ")?") "[" N "]{1,3}" GPT4O_END)}, 1},
    {"youtu",
     {{QN_PRETOK_PATTERN,
       "[" SET_0 "]+|[" SET_1 "]+|[" SET_2 "]+|[" SET_3 "]+",
       {&hangul, &cjk_marks, &bopomofo, &kana_han}},
      STEP(MARKED "[" N "]" GPT4O_END)},
     2},
    {"tiny-aya", {BUILTIN(QN_PRETOK_DIGITS3), STEP(MARKED "[" N "]{1,3}" GPT4O_END)}, 2},
    {"deepseek3", {STEP("[" N "]{1,3}"), WITH(kana_han, "[" SET_0 "]+"), STEP(DEEPSEEK3)}, 3},
    {"spark",
     {STEP("[" N "]{1,3}"), WITH(kana_han, "[" SET_0 "]+"),
      STEP(DEEPSEEK3_WORD "|[\\r\\n]|" SPACES), STEP("[" N "]")},
     4},
    {"afmoe",
     {BUILTIN(QN_PRETOK_DIGITS3), WITH(afmoe_scripts, "[" SET_0 "]+"), STEP(DEEPSEEK3)},
     3},
    {"deepseek-llm",
     {STEP("[\\r\\n]"), WITH(llm_letters, "\\s?[A-Za-z" SET_0 "]+"),
      WITH(llm_marks, "\\s?[!-/:-~" SET_0 "]+"), STEP("\\s+\\z"),
      WITH(beyond_latin, "[" SET_0 "]+"), STEP("[" N "]+")},
     6},
    {"deepseek-coder",
     {STEP("[\\r\\n]"), STEP("\\s?[" L "]+"), STEP("\\s?[" P "]+"),
      WITH(beyond_latin, "[" SET_0 "]+"), STEP("[" N "]")},
     5},
    {"bloom", {WITH(bloom_marks, BLOOM)}, 1},
    {"viking", {WITH(bloom_marks, BLOOM), STEP("[" N "]")}, 2},
    {"chameleon",
     {STEP("<sentinel:[0-9]+>"), STEP("IMGIMG[A-I]{1,4}Z"), STEP("[\\t\\n]|    |  "),
      STEP("[" N "]"), STEP("[" P "!-/:-@\\[-`{-~]"), STEP(GPT2)},
     6},
    /* Han is a set of its own here: E0 are its letters, E1 the rest of its ranges. */
    {"kimi-k2",
     {WITH(han, "[" SET_0 "]+|[^\\r\\n" L "\\xE0" N "]?[" L "]+(?:" CONTRACTION ")?|[" N
                "]{1,3}| ?[^\\s" L "\\xE0" N "]+[\\r\\n]*|" BREAKS SPACES)},
     1},
    {"superbpe", {STEP("[" N "]+"), BUILTIN(QN_PRETOK_SUPERDIGITS)}, 2},
    {"newlines", {STEP("[^\\n]+|\\n+")}, 1},
    {"laguna", {STEP("[^\\n]+|\\n+"), STEP(QWEN2)}, 2},
    {"whitespace", {STEP("\\S+")}, 1},
};

static const qn_pre_row rows[] = {
    {"mpt", "gpt2", QN_PRE_CLEAN},
    {"gpt-2", "gpt2", QN_PRE_CLEAN},
    {"phi-2", "gpt2", QN_PRE_CLEAN},
    {"jina-es", "gpt2", QN_PRE_CLEAN},
    {"jina-de", "gpt2", QN_PRE_CLEAN},
    {"gigachat", "gpt2", QN_PRE_CLEAN},
    {"jina-v2-es", "gpt2", QN_PRE_CLEAN},
    {"jina-v2-de", "gpt2", QN_PRE_CLEAN},
    {"a.x-4.0", "gpt2", QN_PRE_CLEAN},
    {"mellum", "gpt2", QN_PRE_CLEAN},
    {"modern-bert", "gpt2", QN_PRE_CLEAN},
    {"jina-v1-en", "gpt2", QN_PRE_CLEAN | QN_PRE_SEP},
    {"jina-v2-code", "gpt2", QN_PRE_CLEAN | QN_PRE_SEP},
    {"roberta-bpe", "gpt2", QN_PRE_CLEAN | QN_PRE_SEP},
    {"olmo", "gpt2", QN_PRE_CLEAN},
    {"jais", "gpt2", QN_PRE_CLEAN},
    {"exaone4", "gpt2", QN_PRE_CLEAN},
    {"trillion", "gpt2", 0},
    {"granite-docling", "gpt2", 0},
    {"llama3", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"llama-v3", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"llama-bpe", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"falcon3", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"falcon-h1", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"pixtral", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"midm-2.0", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"lfm2", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"jina-v5-nano", "llama3", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN | QN_PRE_BOS},
    {"dbrx", "llama3", QN_PRE_CLEAN},
    {"smaug-bpe", "llama3", QN_PRE_CLEAN},
    {"glm4", "llama3", QN_PRE_CLEAN | QN_PRE_NO_BOS_ID},
    {"chatglm-bpe", "llama3", QN_PRE_CLEAN | QN_PRE_NO_BOS_ID},
    {"qwen2", "qwen2", 0},
    {"deepseek-r1-qwen", "qwen2", 0},
    {"kormo", "qwen2", 0},
    {"f2llmv2", "qwen2", 0},
    {"stablelm2", "qwen2", QN_PRE_CLEAN},
    {"megrez", "qwen2", QN_PRE_CLEAN},
    {"hunyuan", "qwen2", 0},
    {"grok-2", "qwen2", 0},
    {"solar-open", "qwen2", 0},
    {"bailingmoe", "bailing", 0},
    {"bailingmoe2", "bailing", 0},
    {"llada-moe", "bailing", 0},
    {"qwen35", "qwen35", 0},
    {"ufakzeka", "ufakzeka", 0},
    {"seed-coder", "seed-coder", 0},
    {"minicpm5", "minicpm5", QN_PRE_IGNORE_MERGES | QN_PRE_CLEAN},
    {"exaone-moe", "exaone-moe", QN_PRE_CLEAN},
    {"jais-2", "jais2", QN_PRE_CLEAN},
    {"starcoder", "starcoder", QN_PRE_CLEAN},
    {"refact", "starcoder", QN_PRE_CLEAN},
    {"command-r", "starcoder", 0},
    {"smollm", "starcoder", 0},
    {"codeshell", "starcoder", QN_PRE_CLEAN},
    {"exaone", "starcoder", QN_PRE_CLEAN},
    {"minerva-7b", "starcoder", QN_PRE_CLEAN},
    {"mellum2", "starcoder", QN_PRE_CLEAN},
    {"default", "default", QN_PRE_CLEAN},
    {"falcon", "falcon", QN_PRE_CLEAN},
    {"tekken", "tekken", QN_PRE_IGNORE_MERGES | QN_PRE_BOS},
    {"gpt-4o", "gpt4o", 0},
    {"llama4", "gpt4o", 0},
    {"kanana2", "gpt4o", 0},
    {"talkie", "gpt4o", 0},
    {"minimax-m2", "gpt4o", 0},
    {"granite-embed-multi-97m", "granite-multi", QN_PRE_IGNORE_MERGES},
    {"youtu", "youtu", QN_PRE_IGNORE_MERGES},
    {"tiny_aya", "tiny-aya", 0},
    {"cohere2moe", "tiny-aya", 0},
    {"deepseek-v3", "deepseek3", 0},
    {"hunyuan-dense", "deepseek3", 0},
    {"hy_v4", "deepseek3", 0},
    {"joyai-llm", "deepseek3", 0},
    {"spark2_5", "spark", 0},
    {"afmoe", "afmoe", 0},
    {"deepseek-llm", "deepseek-llm", 0},
    {"deepseek-coder", "deepseek-coder", 0},
    {"poro-chat", "bloom", 0},
    {"bloom", "bloom", QN_PRE_CLEAN},
    {"gpt3-finnish", "bloom", QN_PRE_CLEAN},
    {"viking", "viking", 0},
    {"chameleon", "chameleon", QN_PRE_BOS},
    {"kimi-k2", "kimi-k2", QN_PRE_NO_MERGES},
    {"superbpe", "superbpe", 0},
    {"gemma4", "newlines", QN_PRE_CLEAN | QN_PRE_ESCAPE | QN_PRE_FORCE_BOS | QN_PRE_NEWLINES},
    {"granite-embed-multi-311m", "newlines",
     QN_PRE_CLEAN | QN_PRE_ESCAPE | QN_PRE_FORCE_BOS | QN_PRE_NEWLINES},
    {"sarvam-moe", "newlines", QN_PRE_ESCAPE},
    {"laguna", "laguna", 0},
    {"whitespace", "whitespace", QN_PRE_CLEAN | QN_PRE_RAW | QN_PRE_KEEP_CASE},
};

const qn_pre_row *qn__pre_at(size_t index)
{
    return index < sizeof rows / sizeof rows[0] ? &rows[index] : NULL;
}

const qn_pre_row *qn__pre_find(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strlen(rows[i].name) == size && memcmp(rows[i].name, name, size) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

const qn_pretok_set *qn__pretok_set_find(const char *name)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (strcmp(sets[i].name, name) == 0) {
            return &sets[i];
        }
    }
    return NULL;
}
