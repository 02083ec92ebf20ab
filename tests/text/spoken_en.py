"""English as written and as spoken, by what is read."""

NUMBERS = [
    ("I have 3 dogs and 21 cats.", "I have three dogs and twenty-one cats."),
    ("0 or 100?", "zero or one hundred?"),
    (
        "The population is 1,234,567.",
        "The population is one million two hundred thirty-four thousand five hundred sixty-seven.",
    ),
    ("Pi is 3.14159, e is not .5.", "Pi is three point one four one five nine, e is not point five."),
    ("It was -5, then -3.5, then +2.", "It was minus five, then minus three point five, then plus two."),
    ("It was \u22125.", "It was minus five."),
    ("agent 007", "agent zero zero seven"),
    ("order 12345678901", "order one two three four five six seven eight nine zero one"),
    ("1000000000000 stars", "one trillion stars"),
    ("In 1984 and 2007", "In nineteen eighty-four and two thousand seven"),
    ("1905, 1900, 2000, 2024", "nineteen oh five, nineteen hundred, two thousand, twenty twenty-four"),
    ("2048 tokens", "two thousand forty-eight tokens"),
    ("the 2024 elections", "the twenty twenty-four elections"),
    ("In 2019 sales rose.", "In twenty nineteen sales rose."),
    ("v1.2.3 and Python 3.11.7", "version one point two point three and Python three point eleven point seven"),
    ("192.168.0.1", "one nine two dot one six eight dot zero dot one"),
    ("1.5e-3 volts", "one point five times ten to the power of minus three volts"),
    ("MP3, H2O and B2B", "M.P three, H two O and B two B"),
    ("COVID-19 on an iPhone15", "COVID nineteen on an iPhone fifteen"),
    ("an RTX4090 at 1080p", "an R.T.X forty ninety at ten eighty p"),
    ("10K followers, 7B parameters", "ten thousand followers, seven billion parameters"),
    ("4K and 5G", "four K and five G"),
    ("a 5-star hotel, a 24-hour desk", "a five-star hotel, a twenty-four-hour desk"),
    ("price:100", "price:one hundred"),
]

ORDINALS_AND_FRACTIONS = [
    ("the 1st, 2nd, 3rd and 21st", "the first, second, third and twenty-first"),
    ("the 100th, the 1,000th", "the one hundredth, the one thousandth"),
    ("the 12TH man", "the twelfth man"),
    ("1/2 cup and 3/4 cup", "one half cup and three quarters cup"),
    ("2 1/2 hours", "two and one half hours"),
    ("2½ hours", "two and one half hours"),
    ("5/3, 7/32, 1/77", "five thirds, seven thirty-seconds, one over seventy-seven"),
    ("open 24/7", "open twenty-four seven"),
]

DATES = [
    ("On 2024-05-03 we met.", "On May third, twenty twenty-four we met."),
    ("On 5/3/2024 we met.", "On May third, twenty twenty-four we met."),
    ("on 13/5/99", "on May thirteenth, nineteen ninety-nine"),
    ("on 3 May 2024", "on the third of May, twenty twenty-four"),
    ("The 3rd of June", "The third of June"),
    ("May 3, 2024", "May third, twenty twenty-four"),
    ("Jan. 5th, at noon", "January fifth, at noon"),
    ("3-5 May, or May 3-5", "the third to fifth of May, or May third to fifth"),
    ("since Sept 2023", "since September twenty twenty-three"),
    ("2024-05-03T14:05:30Z", "May third, twenty twenty-four at fourteen oh five and thirty seconds"),
    ("2024-13-45", "twenty twenty-four thirteen - forty-five"),
    ("the 1990s and the '80s", "the nineteen nineties and the eighties"),
    ("Mon., Jan. 1", "Monday, January first"),
]

TIMES = [
    ("At 14:05 sharp", "At fourteen oh five sharp"),
    ("at 9:00", "at nine o'clock"),
    ("at 3:30 pm.", "at three thirty P.M."),
    ("3pm or 10 a.m. today", "three P.M or ten A.M. today"),
    ("from 9:00-17:00", "from nine o'clock to seventeen o'clock"),
    ("10-11am", "ten to eleven A.M"),
    ("99:99", "ninety-nine to ninety-nine"),
]

PHONES = [
    ("555-123-4567", "five five five, one two three, four five six seven"),
    ("(555) 123-4567", "five five five, one two three, four five six seven"),
    ("+1 555 123 4567", "plus one, five five five, one two three, four five six seven"),
    ("Call 555-1234.", "Call five five five, one two three four."),
]

MONEY = [
    ("It costs $3.50.", "It costs three dollars and fifty cents."),
    ("$1, $0.99, $0.01", "one dollar, ninety-nine cents, one cent"),
    ("£5.01 or €1,200.50", "five pounds and one penny or one thousand two hundred euros and fifty cents"),
    ("¥500 or ₹20", "five hundred yen or twenty rupees"),
    ("$3.5 million, $5k, $2bn", "three point five million dollars, five thousand dollars, two billion dollars"),
    ("$10/month", "ten dollars per month"),
    ("$3-5 each", "three to five dollars each"),
    ("-$5", "minus five dollars"),
    ("5 USD, EUR 20, 5€", "five U.S dollars, twenty euros, five euros"),
    ("$1.005", "one point zero zero five dollars"),
]

UNITS = [
    ("5 km at 60 km/h", "five kilometers at sixty kilometers per hour"),
    ("1 kg, 2.5 lbs, 16GB", "one kilogram, two point five pounds, sixteen gigabytes"),
    ("20 °C, -5°F, 90°", "twenty degrees Celsius, minus five degrees Fahrenheit, ninety degrees"),
    ("20\u2103", "twenty degrees Celsius"),
    ("20 ms, 10 µs, 10 μs", "twenty milliseconds, ten microseconds, ten microseconds"),
    ("50 m² or 50㎡", "fifty square meters or fifty square meters"),
    ("3-5 km", "three to five kilometers"),
    ("6'2\" tall", "six foot two tall"),
    ("50% off, 3-5%, 99.9 %", "fifty percent off, three to five percent, ninety-nine point nine percent"),
]

RANGES = [
    ("pages 3-5", "pages three to five"),
    ("1990–1995", "nineteen ninety to nineteen ninety-five"),
    ("2010 - 2015", "twenty ten to twenty fifteen"),
    ("a score of 3:1 in 16:9", "a score of three to one in sixteen to nine"),
    ("-5 to -3", "minus five to minus three"),
]

WEB = [
    ("Visit https://www.example.com/docs/a-b?x=1#top.", "Visit example dot com slash docs slash a dash b."),
    ("See example.com, please", "See example dot com, please"),
    ("node.js and README.md. Then", "node dot js and readme dot md. Then"),
    ("Mail john.doe@example.com now", "Mail john dot doe at example dot com now"),
    ("#MachineLearning with @john_doe", "hashtag Machine Learning with at john doe"),
    ("we are #1", "we are number one"),
]

CAPITALS = [
    ("FBI agents use an API.", "F.B.I agents use an A.P.I."),
    ("HTML, CEOs and PDFs", "H.T.M.L, C.E.O's and P.D.F's"),
    ("NASA and NATO", "NASA and NATO"),
    ("STOP IT NOW!", "stop it now!"),
    ("the IT department", "the I.T department"),
    ("WOW, HELLO!", "wow, hello!"),
    ("the U.S. economy", "the U.S. economy"),
    ("AT&T and R&D", "A.T and T and R and D"),
]

WORDS = [
    ("Dr. Smith met Mr Jones vs. Mrs. Lee.", "Doctor Smith met Mister Jones versus Missus Lee."),
    ("on Main St. in No. 5", "on Main Street in Number five"),
    ("St. Louis, Fig. 3, pp. 3-4", "Saint Louis, Figure three, pages three to four"),
    ("fruit, e.g. apples, i.e. food", "fruit, for example apples, that is food"),
    ("apples, etc.", "apples, et cetera."),
    ("apples, etc. are", "apples, et cetera are"),
    ("Acme Inc. was big", "Acme Incorporated was big"),
    ("Chapter IV of Vol. II", "Chapter four of Volume two"),
    ("Louis XIV and Henry VIII's wife", "Louis the fourteenth and Henry the eighth's wife"),
    ("World War II", "World War two"),
    ("No. I refuse.", "No. I refuse."),
]

SYMBOLS = [
    ("2 + 2 = 4", "two plus two equals four"),
    ("3 × 4, 10 / 2, 6 ÷ 2, 2*3", "three times four, ten divided by two, six divided by two, two times three"),
    ("10 - 3 = 7", "ten minus three equals seven"),
    ("x², y³, 2^10, 10⁶", "x squared, y cubed, two to the power of ten, ten to the power of six"),
    ("~5 or ≈6", "about five or about six"),
    ("A → B, a -> b", "A to B, a to b"),
    ("a < b", "a less than b"),
    ("Tom & Jerry", "Tom and Jerry"),
    ("C++ and C#", "C plus plus and C sharp"),
    ("a/b and/or c, w/o d", "a slash b and or c, without d"),
    ("1920x1080, 3x faster", "nineteen twenty by one thousand eighty, three times faster"),
    ("snake_case [x] {y}", "snake case x y"),
    ("Acme™ ®", "Acme"),
]

CHARACTERS = [
    ("Hello 😀 world 👍🏽!", "Hello world!"),
    ("press 1️⃣", "press one"),
    ("ＡＢＣ１２３　ｈｅｌｌｏ", "A.B.C one hundred twenty-three hello"),
    ("𝐇𝐞𝐥𝐥𝐨 ﬁsh", "Hello fish"),
    ("he\u200bllo\ufeff wo\u00adrld", "hello world"),
    ("a\x00b\x07c", "abc"),
    ("don’t", "don't"),
    ("CO₂", "C.O two"),
    ("a\u00a0 b\t c", "a b c"),
]

MARKUP = [
    ("# Heading\n\nText here.", "Heading. Text here."),
    ("**bold** *it* __b__ _i_ `code` ~~gone~~", "bold it b i code gone"),
    ("[link](http://a.b/c) ![alt](x.png)", "link alt"),
    ("- one\n- two\n* [x] three", "one. two. three"),
    ("1. Wash\n2) Dry", "one. Wash. two. Dry"),
    ("> quoted\n> text", "quoted text"),
    ("```python\nprint\n```", "print"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b. one, two"),
    ("Above\n\n---\n\nBelow", "Above. Below"),
    ("an **unclosed mark", "an unclosed mark"),
    ("<p>Hello &amp; <b>welcome</b><br>to us</p>", "Hello and welcome to us"),
    ("<!-- no --><script>x()</script>yes", "yes"),
    ("5 &lt; 6 &#169; 2", "five less than six copyright two"),
    ("a wrapped\nline", "a wrapped line"),
    ("One line\nAnother", "One line. Another"),
    ("One line,\nAnother.\nThird", "One line, Another. Third"),
]

SPOKEN_EN = [
    *NUMBERS,
    *ORDINALS_AND_FRACTIONS,
    *DATES,
    *TIMES,
    *PHONES,
    *MONEY,
    *UNITS,
    *RANGES,
    *WEB,
    *CAPITALS,
    *WORDS,
    *SYMBOLS,
    *CHARACTERS,
    *MARKUP,
]
