"""Inputs for JVM functions: the rules that Cast, TimestampConverter and RegexRouter depend on."""

from tests.support.transform_corpus.cases import Json

_LONG_ZONE = "X" * 3
_DOUBLES = ("0.0", "-0.0", "1.0", "-1.5", "0.001", "0.00099999", "9999999.0", "1e7", "12345678.9",
            "1e-5", "1.7976931348623157e308", "4.9e-324", "2.2250738585072014e-308", "NaN",
            "Infinity", "-Infinity", "100.0", "123456.789", "1e21", "1e22", "0.1", "0.3333333333",
            "3.141592653589793", "1e100", "1.5e300", "-1e-7", "5e9", "1234567.0")  # fmt: skip
_FLOATS = ("0.0", "-0.0", "1.0", "0.1", "1e7", "9999999.0", "1.1e10", "3.4028235e38", "0.001",
           "1e-4", "NaN", "-Infinity", "16777216", "0.33333334", "1e-10", "123456.79")  # fmt: skip
_TEXTS = ("0", "1", "-1", "+1", "127", "128", "-128", "-129", "32767", "32768", "2147483647",
          "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "", " ", " 1",
          "1 ", "1.0", "0x10", "010", "+", "-", "--1", "1_0", "٣", "\uff11", "1L", "a")  # fmt: skip
_REALS = ("1", "1.5", " 1.5\t", "\n2", "1e3", "1E3", "1e+3", "1e", ".5", "5.", ".", "", " ", "NaN",
          "nan", "+NaN", "-NaN", "Infinity", "+Infinity", "-Infinity", "infinity", "inf", "1f",
          "1F", "1d", "1D", "1fd", "0x1p3", "0x1.8p1", "0X.8P-1f", "0x1", "1_0", "1,5", "1e400",
          "-1e400", "1e-400", "1e99999999999", "٣", "1\u00a0", "\u00011", "1e0005", "00012.50",
          "3.4028236e38", "1e39", "16777217", "0x1.p1", "0x.p1", "1e 3", "+-1")  # fmt: skip
_NARROWED = ("NaN", "0.0", "1.9", "-1.9", "128.0", "-129.0", "40000.0", "1e7", "3e9", "-3e9",
             "1e20", "-1e20", "Infinity", "-Infinity", "2147483647.5", "4294967296.0",
             "9.3e18")  # fmt: skip
_DECIMALS = ("0", "0.00", "1.20", "-12.34", "1E+3", "1E-7", "0.000001", "0.0000001", "0E-7", "1e10",
             "123456789012345678901234567890.123")  # fmt: skip
_MOMENTS = (0, -1, 1_709_210_096_789, 1_735_689_599_999, 1_704_067_200_000, -62_135_596_800_000,
            -12_219_292_800_000, -12_219_292_800_001, 253_402_300_800_000,
            -62_167_219_200_001, 951_782_400_000, 1_609_459_199_000)  # fmt: skip
_FORMATS = ("yyyy-MM-dd'T'HH:mm:ss.SSS", "yy y yyy yyyyy", "M MM MMM MMMM LLL L", "d dd D DDD F",
            "E EEE EEEE u", "w ww W", "YYYY-'W'ww", "H HH k K h hh a", "m s S SS SSS SSSSS",
            f"z zzzz Z X XX {_LONG_ZONE}", "G GGGG", "''yyyy''", "'a''b' yyyy", "yyyy年MM月",
            "yyyy/MM/dd, EEE")  # fmt: skip
_PARSED: dict[str, tuple[str, ...]] = {
    "yyyy-MM-dd": ("2024-02-29", "2023-02-30", "2024-00-00", "2024-13-01", "99-1-1", "2024-2-3x",
                   "2024--1-05", "-2024-01-01", "2024 -01-01", "2024- 01-01", "20240101",
                   "0000-01-01",
                   "1582-10-15", "1582-10-04", "1582-10-10", "99999-12-31", "2024-1", "+24-01-01",
                   "123456789012-01-01", "2024-01-99999"),
    "yyyyMMdd": ("20240229", "2024229", "2024 229", "202402", "20241399", "202402290"),
    "yyMMdd": ("240229", "700101", "450101", "24229"),
    "yy": ("24", "70", "4", "2024", "-5", "024"),
    "y": ("24", "2024", "5"),
    "yyy": ("24", "2024", "024"),
    "HH:mm:ss": ("12:34:56", "24:00:00", "-1:00:00", "99:99:99", "1:2:3", "12:34"),
    "HH:mm:ss.SSS": ("12:34:56.7", "12:34:56.78", "12:34:56.7891", "12:34:56.-7"),
    "hh:mm a": ("12:00 AM", "12:00 PM", "01:30 pm", "13:00 PM", "0:00 AM", "1:00", "1:00 XM"),
    "kk KK": ("24 00", "1 11"),
    "MMM d, yyyy": ("Feb 29, 2024", "feb 29, 2024", "February 29, 2024", "Mai 1, 2024", "5 1, 2024",
                    "May 1, 2024", "Sept 1, 2024"),
    "EEEE": ("Thursday", "thu", "Thu", "Mon"),
    "EEE yyyy-MM-dd": ("Thu 2024-02-29", "Fri 2024-02-29"),
    "yyyy-MM-dd HH:mm X": ("2024-02-29 01:00 Z", "2024-02-29 01:00 +02", "2024-02-29 01:00 +0200",
                           "2024-02-29 01:00 z", "2024-02-29 01:00 +2", "2024-02-29 01:00 -23"),
    "yyyy-MM-dd HH:mm XX": ("2024-02-29 01:00 Z", "2024-02-29 01:00 +02", "2024-02-29 01:00 +0230",
                            "2024-02-29 01:00 +02:30"),
    f"yyyy-MM-dd HH:mm {_LONG_ZONE}": ("2024-02-29 01:00 +02:30", "2024-02-29 01:00 +0230"),
    "yyyy-MM-dd HH:mm Z": ("2024-02-29 01:00 +0230", "2024-02-29 01:00 -03:00",
                           "2024-02-29 01:00 GMT", "2024-02-29 01:00 UTC", "2024-02-29 01:00 GMT+1",
                           "2024-02-29 01:00 Z", "2024-02-29 01:00 +2", "2024-02-29 01:00 EST",
                           "2024-02-29 01:00 PST", "2024-02-29 01:00 CET"),
    "yyyy-MM-dd HH:mm z": ("2024-02-29 01:00 UTC", "2024-07-29 01:00 PDT",
                           "2024-02-29 01:00 GMT+02:00", "2024-02-29 01:00 +0100",
                           "2024-07-29 01:00 CEST", "2024-02-29 01:00 Europe/Berlin"),
    "yyyy.D": ("2024.60", "2023.366"),
    "YYYY-'W'ww-u": ("2024-W09-4", "2020-W53-7", "2024-W00-1", "2024-W09-9"),
    "YYYY ww": ("2024 09",),
    "yyyy ww": ("2024 09",),
    "yyyy-MM W E": ("2024-02 5 Thu", "2024-02 1 Sun"),
    "yyyy-MM F E": ("2024-02 5 Thu", "2024-02 1 Mon"),
    "G yyyy-MM-dd": ("AD 2024-01-01", "BC 0044-03-15", "ad 2024-01-01", "XX 2024-01-01"),
    "'T'yyyy": ("T2024", "2024"),
    "yyyy MM": ("2024 02", "2024  02", "2024\t02", " 2024 02"),
    "M/d/yyyy h:m:s a": ("2/29/2024 1:2:3 PM",),
    "ss": ("1709210096", "99999999999"),
    "dd MM": ("1 1",),
    "bogus": ("x",),
    "yyyy 'open": ("2024",),
    "": ("", "x"),
}  # fmt: skip
_RULES = [
    ("a(?i)b|c", "y", "C"), ("(?:a(?i)b|c)d", "y", "Cd"), ("(?:a(?i)b|c)d", "y", "CD"),
    ("(?i)a(?-i)b", "y", "Ab"), ("(?i)a(?-i)b", "y", "AB"),
    ("(\\w+)-(\\w+)", "$2-$1", "a-b"), ("(?<x>a)(b)?", "${x}[$2]", "a"), ("a*+a", "n", "aaa"),
    ("(a*)+", "$1", "aaa"), ("[a-c&&[b-d]]+", "y", "bcb"), ("[^a-c[d]]+", "y", "xyz"),
    ("\\p{Upper}\\P{Upper}+", "y", "Abc"), ("\\p{javaLowerCase}+", "y", "abc"),
    ("\\p{IsLatin}+", "y", "abc"), ("\\p{InGreek}+", "y", "αβγ"), ("\\p{Sc}", "y", "$"),
    ("\\w+", "y", "é"), ("\\d+", "y", "٣"), ("\\s", "y", "\u00a0"), ("(?U)\\w+", "y", "é"),
    ("(?i)É", "y", "é"), ("(?iu)É", "y", "é"), (".", "y", "\u2028"), ("(?d).", "y", "\u2028"),
    ("\\R", "y", "\r\n"), ("\\x{1F600}", "y", "\U0001f600"), ("\\cA", "y", "\u0001"),
    ("\\0101", "y", "A"), ("\\e\\a\\t", "y", "\u001b\u0007\t"), ("a$", "y", "a\n"),
    ("a\\Z\\n", "y", "a\n"), ("(a)(b)(c)", "$3$21", "abc"), ("[\\Q]\\E]", "y", "]"),
    ("(?<a>x)(?<b>y)", "${b}${a}", "xy"), ("[\\d&&[^5]]+", "y", "123"), ("[a&&b]", "y", "a"),
    ("(?:(?i)a)b", "y", "Ab"), ("a(?i)b", "y", "aB"), ("(?-i)a", "y", "a"), ("\\X", "y", "e\u0301"),
    ("[]a]", "y", "]"), ("[a-]", "y", "-"), ("a{,2}", "y", "a"), ("{", "y", "{"), ("a]", "y", "a]"),
    ("}", "y", "}"), ("[&&a]", "y", "a"), ("[a&&]", "y", "a"), ("[a b]", "y", " "),
    ("(?x)[a b]", "y", " "), ("\\_", "y", "_"), ("\\y", "y", "y"), ("\\v", "y", "\u000b"),
    ("a??b", "y", "ab"), ("(?>a+)b", "y", "aab"), ("(?<!x)a", "y", "a"), ("\\G.", "y", "a"),
    ("(a)|b", "[$1]", "b"), ("a", "\\n", "a"), ("[^\\p{L}]", "y", "1"),
    ("\\N{LATIN SMALL LETTER A}", "y", "a"), ("\\p{Lu}", "y", "A"), ("\\pL+", "y", "ab"),
    ("\\p{Alnum}+", "y", "a1"),
    ("\\p{ASCII}+", "y", "a~"), ("\\p{XDigit}+", "y", "fF0"), ("\\p{Space}", "y", "\t"),
    ("\\p{Blank}\\p{Cntrl}", "y", " \u0000"), ("\\p{Graph}\\p{Print}", "y", "! "),
    ("\\H\\h", "y", "a\u00a0"), ("\\V+", "y", "ab"), ("\\bab\\B?", "y", "ab"),
    ("\\P{IsLatin}", "y", "\u03b1"), ("\\p{script=Greek}\\p{sc=Latn}", "y", "\u03b1a"),
    ("\\p{IsGreek}", "y", "a"), ("\\p{blk=Latin-1 Supplement}", "y", "\u00e9"),
    ("[\\p{IsLatin}&&[^\\p{Lu}]]+", "y", "ab\u00e9"), ("[\\p{IsLatin}&&[^\\p{Lu}]]+", "y", "aB"),
    ("(?i)\\p{gc=Lu}", "y", "a"), ("(?i)[a-c]+K", "y", "ABk"), ("(?i)k", "y", "\u212a"),
    ("(?i)\\p{Lower}", "y", "A"), ("\\p{IsWhite_Space}", "y", "\t"), ("\\X{2}", "y", "e\u0301a"),
    ("a(?<=x|aa?)b", "$0", "ab"), (".*(?<=-v\\d{1,3})", "y", "topic-v12"),
    (".*(?<!-v\\d{1,3})", "y", "topic-v12"), ("\\G\\Ga", "$0", "a"),
    ("(?m)\\r^\\n", "y", "\r\n"), ("(?m)a$\\r\\n^b", "y", "a\r\nb"), ("\\r$\\n", "y", "\r\n"),
    ("(?<a>x)(?<a>y)", "y", "xy"), ("[a-z&&[def]]+", "y", "ed"), ("a--[b]~~", "y", "a--b~~"),
    ("[a--b||c~~]+", "y", "a|~"), ("(a|b)*\\1", "$1", "abb"),
]  # fmt: skip


def questions() -> list[Json]:
    """All inputs, as the lines that TransformCorpus.java reads."""
    found: list[Json] = [{"ask": "Double.toString", "of": [each]} for each in _DOUBLES]
    found += [{"ask": "Float.toString", "of": [each]} for each in _FLOATS]
    for name in ("Byte.parseByte", "Short.parseShort", "Integer.parseInt", "Long.parseLong"):
        found += [{"ask": name, "of": [each]} for each in _TEXTS]
    for name in ("Double.parseDouble", "Float.parseFloat"):
        found += [{"ask": name, "of": [each]} for each in _REALS]
    for name in ("byteValue", "shortValue", "intValue", "longValue"):
        found += [{"ask": f"Double.{name}", "of": [each]} for each in _NARROWED]
    found += [{"ask": "BigDecimal.toString", "of": [each]} for each in _DECIMALS]
    found += [
        {"ask": "SimpleDateFormat.format", "of": [pattern, moment]}
        for pattern in _FORMATS
        for moment in _MOMENTS
    ]
    found += [
        {"ask": "SimpleDateFormat.parse", "of": [pattern, text]}
        for pattern, texts in _PARSED.items()
        for text in texts
    ]
    return found + [{"ask": "String.replaceFirst", "of": list(rule)} for rule in _RULES]
