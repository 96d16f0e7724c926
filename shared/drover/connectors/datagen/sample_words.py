"""Words for generated rows."""

FIRST_NAMES = (
    "Ada", "Amir", "Ana", "Ben", "Chen", "Clara", "Daniel", "Elif", "Emma", "Farid", "Greta",
    "Hana", "Igor", "Ines", "Jonas", "Kofi", "Lena", "Liam", "Maria", "Mei", "Mila", "Noah",
    "Nora", "Omar", "Paula", "Priya", "Rosa", "Sofia", "Tariq", "Tom", "Yuki", "Zoe",
)  # fmt: skip
LAST_NAMES = (
    "Adeyemi", "Ali", "Andersson", "Becker", "Costa", "Diaz", "Dubois", "Evans", "Fischer",
    "Garcia", "Haddad", "Hansen", "Ito", "Ivanov", "Jensen", "Kaya", "Keller", "Khan", "Kim",
    "Larsen", "Martin", "Meyer", "Novak", "Okafor", "Patel", "Rossi", "Sato", "Silva", "Smith",
    "Tanaka", "Weber", "Yilmaz",
)  # fmt: skip
MAIL_DOMAINS = ("example.com", "example.net", "example.org", "mail.example")
WORDS = (
    "amber", "birch", "cedar", "cloud", "coral", "delta", "ember", "fern", "field", "flint",
    "frost", "grove", "harbor", "hazel", "indigo", "iris", "juniper", "lake", "linen", "maple",
    "meadow", "mist", "moss", "ocean", "olive", "pearl", "pine", "river", "sand", "stone",
    "violet", "willow",
)  # fmt: skip

_CITIES = (
    "Amsterdam", "Athens", "Barcelona", "Berlin", "Bogota", "Cairo", "Chicago", "Copenhagen",
    "Dublin", "Hamburg", "Helsinki", "Istanbul", "Jakarta", "Kyoto", "Lagos", "Lima", "Lisbon",
    "London", "Madrid", "Mumbai", "Nairobi", "Oslo", "Paris", "Prague", "Rome", "Seoul",
    "Stockholm", "Sydney", "Toronto", "Vienna", "Warsaw", "Zurich",
)  # fmt: skip
_PRODUCTS = (
    "backpack", "blender", "book", "camera", "chair", "clock", "coat", "desk", "drone", "guitar",
    "headphones", "jacket", "kettle", "keyboard", "lamp", "laptop", "monitor", "mug", "notebook",
    "pan", "phone", "printer", "rug", "scarf", "shoes", "sofa", "table", "tablet", "tent",
    "toaster", "vase", "watch",
)  # fmt: skip
_PAGES = (
    "/", "/about", "/account", "/blog", "/cart", "/checkout", "/contact", "/help", "/login",
    "/offers", "/orders", "/products", "/products/42", "/search", "/signup", "/terms",
)  # fmt: skip

#: Word lists by the last word of the column name.
BY_NAME = {
    "first": FIRST_NAMES,
    "firstname": FIRST_NAMES,
    "last": LAST_NAMES,
    "lastname": LAST_NAMES,
    "city": _CITIES,
    "location": _CITIES,
    "country": ("AU", "BR", "CA", "DE", "DK", "ES", "FR", "GB", "IN", "IT", "JP", "NL", "PL", "US"),
    "product": _PRODUCTS,
    "item": _PRODUCTS,
    "status": ("created", "paid", "shipped", "delivered", "returned"),
    "currency": ("CHF", "EUR", "GBP", "JPY", "USD"),
    "device": ("phone", "tablet", "desktop"),
    "page": _PAGES,
    "url": _PAGES,
    "path": _PAGES,
    "referrer": ("direct", "mail", "news", "search", "social"),
    "color": ("black", "blue", "green", "grey", "red", "white", "yellow"),
}
