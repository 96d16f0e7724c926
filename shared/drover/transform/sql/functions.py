"""The functions that a SELECT may call.

Each computes one value from the values of one record, is deterministic, and returns a result whose
size is bounded by the size of its arguments. So the list has no function that reads files,
settings, the clock or other records, none that returns random numbers, and none whose result has a
length given by a number. A composition of functions with lambdas (``x || x``) can still grow: the
memory of a query is limited (see ``engine``).
"""

from typing import Final

_OPERATORS = "+ - * / // % ** ^ || & | << >> ~ ! -> ->> ~~ !~~ ~~* !~~* ~~~ ^@ @> <@ && @"
_NUMBERS = """
    abs acos asin atan atan2 bit_count cbrt ceil ceiling cos cot degrees even exp floor gamma
    gcd greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple
    lgamma ln log log10 log2 mod nextafter pi pow power radians round round_even sign signbit sin
    sqrt tan trunc xor add subtract multiply divide
"""
_TEXTS = """
    array_extract ascii base64 bit_length char_length character_length chr concat concat_ws
    contains decode editdist3 encode ends_with from_base64 from_hex hamming hex instr
    jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len length
    length_grapheme levenshtein like_escape ilike_escape not_like_escape not_ilike_escape lower
    ltrim md5 nfc_normalize ord parse_dirname parse_filename parse_path position prefix
    regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array replace reverse right right_grapheme rtrim sha1 sha256 split split_part
    starts_with str_split str_split_regex string_split string_split_regex string_to_array
    strip_accents strlen strpos substr substring substring_grapheme suffix to_base64 to_hex
    translate trim ucase unhex unicode upper url_decode url_encode
"""
_TIMES = """
    century date_diff date_part date_sub date_trunc datediff datepart datetrunc day dayname
    dayofmonth dayofweek dayofyear decade epoch epoch_ms epoch_ns epoch_us era hour isodow
    isoyear last_day make_date make_time make_timestamp make_timestamp_ms make_timestamptz
    microsecond millennium millisecond minute month monthname quarter second strftime strptime
    time_bucket timezone to_days to_hours to_microseconds to_milliseconds to_minutes to_months
    to_seconds to_timestamp to_weeks to_years try_strptime week weekday weekofyear year yearweek
"""
_NESTED = """
    array_concat array_contains array_distinct array_filter array_has array_has_all array_has_any
    array_length array_position array_reverse array_slice array_sort array_to_string
    array_transform cardinality element_at flatten list_any_value list_avg list_concat
    list_contains list_count list_distinct list_element list_extract list_filter list_first
    list_has_all list_has_any list_last list_max list_min list_position list_prepend list_append
    list_product list_reverse list_slice list_sort list_sum list_transform list_unique list_value
    list_zip map map_concat map_contains map_entries map_extract map_extract_value map_from_entries
    map_keys map_values row struct_concat struct_extract struct_insert struct_pack union_extract
    union_tag
"""
_JSON = """
    array_to_json json json_array json_array_length json_contains json_exists json_extract
    json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch
    json_object json_quote json_type json_valid json_value row_to_json to_json
"""
_OTHERS = "coalesce constant_or_null error if ifnull nullif try typeof"

#: Functions whose result can be as large as the product of two arguments: the index of the one that
#: must be a constant text.
CONSTANT_ARGUMENTS: Final = {
    "replace": 2, "regexp_replace": 2, "concat_ws": 0, "array_to_string": 1,
}  # fmt: skip
CONSTANT_MAX_CHARS: Final = 1_000

ALLOWED: Final = frozenset(
    " ".join((_OPERATORS, _NUMBERS, _TEXTS, _TIMES, _NESTED, _JSON, _OTHERS)).split()
)
