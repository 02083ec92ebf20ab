"""Everyday sentences put together from patterns: English, Mandarin, and Mandarin with English words in it."""

from __future__ import annotations

import random
import re


def _words(text: str) -> list[str]:
    return text.split()


def _phrases(text: str) -> list[str]:
    return text.split(",")


NAMES = _words("Anna Tom Sarah James Linda Peter Mary John Alice Robert Emma David Sophie Michael Grace Olivia")
PLACES = _phrases(
    "the office,the station,the library,Paris,London,New York,the park,the kitchen,the airport,the museum,the hotel,"
    "Chicago,the garden,the market,school,the beach,the hospital,the old bridge,the supermarket,the third floor"
)
TIMES = _phrases(
    "this morning,tomorrow,at three o'clock,on Monday,next week,yesterday,in ten minutes,at half past nine,last night,"
    "every day,at noon,right now,before dinner,after the meeting,on Thursday afternoon"
)
THINGS = _phrases(
    "the report,your order,a cup of coffee,the weather forecast,the keys,this song,the new camera,a good book,"
    "the blue jacket,our tickets,the meeting notes,a small present,the answer,the phone number,the window,the invoice"
)
VERBS = _phrases("send,find,bring,read,check,buy,open,describe,finish,remember,repeat,explain")
ENGLISH = (
    "Hello {name}, how are you today?", "Could you please {verb} {thing} {time}?", "I will meet you at {place} {time}.",
    "Thank you, {name}. I will {verb} {thing} {time}.", "Good evening, and welcome to {place}.",
    "The train to {place} leaves {time}.", "Did {name} {verb} {thing}, or should I ask again?", "Yes, of course.",
    "There are {count} people waiting at {place}.", "It costs {count} dollars, which is too much for {thing}.",
    "I'm sorry, I don't understand.", "What would you like to do {time}?", "{name} said that {thing} was at {place}.",
    "We can {verb} {thing} {time}, if you like.", "Please wait a moment while I {verb} {thing}.",
    "That's a great question, {name}!", "The temperature will reach {count} degrees {time}.", "Let me {verb} that.",
    "Here is {thing} you asked for.", "Turn left after {place}, then walk for {count} minutes.", "Not yet.",
    "How can I help you {time}?", "No, {name} has not been to {place} yet.", "Who left {thing} at {place} {time}?",
    "If {name} cannot {verb} {thing} {time}, we will do it ourselves.", "My number is {count}, {count}, {count}.",
)  # fmt: skip

PEOPLE = _words("小明 王老师 李医生 我妈妈 他的朋友 张经理 陈小姐 爷爷 邻居 我的同事 刘先生 孩子们 司机 售货员 我们")
SPOTS = _words("公园 学校 医院 火车站 图书馆 办公室 超市 机场 北京 上海 广州 家里 餐厅 楼下 博物馆 银行")
MOMENTS = _words("今天 明天 昨天晚上 下个星期 早上八点 中午 周末 刚才 每天 去年 下午三点半 吃完饭以后 过年的时候")
GOODS = _words(
    "一本书 一杯咖啡 两张票 那封邮件 新手机 手表 一件蓝色的衣服 水果 会议记录 那首歌 礼物 一把雨伞 钥匙 面包"
)
DEEDS = _words("买 找 带来 看 检查 准备 拿 介绍 修好 送来")
MANDARIN = (
    "{who}{when}去{where}{deed}{what}。", "请问{where}怎么走？",
    "{when}我想和{who}一起去{where}。", "你好，很高兴认识你。",
    "{who}说{when}不能来{where}了。", "能不能帮我{deed}{what}？", "没关系，慢慢来。",
    "{what}放在{where}了，你看见了吗？",
    "{when}的天气真不错，适合去{where}走走。", "从这里到{where}大概要{count}分钟。", "对不起，我没有听清楚。",
    "{who}花了{count}块钱{deed}{what}。", "谢谢你，{who}，这件事就拜托了。", "欢迎来到{where}，请问需要什么帮助？",
    "如果{who}{when}有空，我们就一起{deed}{what}。", "{where}里有{count}个人在排队。", "当然可以，请稍等一下。",
    "{who}从来没有去过{where}，所以有点紧张。", "别忘了{when}{deed}{what}！", "这是{who}{when}给我的{what}。",
    "气温会升到{count}度，{when}可能下雨。", "{who}为什么{when}还没有到{where}？",
    "我的号码是{count}，{count}，{count}。",
)  # fmt: skip

WORDS = _phrases(
    "email,WiFi,PPT,Excel,Python,GitHub,deadline,meeting,bug,project,schedule,app,demo,offer,party,feedback,laptop,"
    "password,playlist,iPhone,Google,server,team,budget,coffee,office,interview,update,keyboard,website"
)
PHRASES = _phrases(
    "good morning,no problem,see you tomorrow,machine learning,open source,take it easy,customer service,"
    "happy birthday,data center,speech synthesis,user interface,best practice,work from home"
)
MIXED = (
    "{who}{when}把{word}发给我了。", "请打开{word}，然后检查一下{other}。", "这个{word}的{other}有点问题。",
    "{when}的{word}改到{where}了。", "{who}最喜欢说的一句话是{phrase}。", "我们的{word}需要一个新的{other}。",
    "你听说过{phrase}吗？", "他在{where}做{phrase}方面的工作。", "别担心，{phrase}，{who}会处理的。",
    "这个{word}太难用了，我想换一个。", "{who}说{phrase}，然后就走了。", "先看{word}，再写{other}，最后开{word}。",
    "Please tell {name}，{when}有一个{word}。", "{name}{when}在{where}等你。", "{word}和{other}哪个更好？",
)  # fmt: skip


def english(count: int, order: random.Random) -> list[str]:
    """At most `count` different sentences."""
    fields = {"name": NAMES, "place": PLACES, "time": TIMES, "thing": THINGS, "verb": VERBS}
    counts = [str(n) for n in range(2, 120)]
    return _filled(ENGLISH, fields | {"count": counts}, count, order)


def mandarin(count: int, order: random.Random) -> list[str]:
    """At most `count` different sentences; their numbers are written out."""
    return _filled(MANDARIN, _mandarin_fields(), count, order)


def mixed(count: int, order: random.Random) -> list[str]:
    """At most `count` different sentences."""
    fields = _mandarin_fields() | {"word": WORDS, "other": WORDS, "phrase": PHRASES, "name": NAMES}
    return _filled(MIXED, fields, count, order)


def _mandarin_fields() -> dict[str, list[str]]:
    tens, ones = ["十", "二十", "三十", "五十", "八十"], list("一二三四五六七八九")
    counts = [*ones[2:], *(ten + one for ten in tens for one in ones), "一百", "两百五十", "一千两百"]
    return {"who": PEOPLE, "where": SPOTS, "when": MOMENTS, "what": GOODS, "deed": DEEDS, "count": counts}


def _filled(patterns: tuple[str, ...], fields: dict[str, list[str]], count: int, order: random.Random) -> list[str]:
    def fill(match: re.Match[str]) -> str:
        return order.choice(fields[match[1]])

    drawn = (re.sub(r"\{(\w+)\}", fill, order.choice(patterns)) for _ in range(count))
    return list(dict.fromkeys(drawn))
