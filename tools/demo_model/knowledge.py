"""What the demo knows of q35chat and of itself: patterns of questions, each topic with one answer.

Braces mark choices (see `phrases.expand`). Commands here must be those of the application.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """Questions with the same answer; `thought` is the reasoning written when thinking is on."""

    patterns: tuple[str, ...]
    answer: str
    thought: str


HOW = "{how do i|how can i|how to|how does one|can i|what must i do to|is it possible to|tell me how to|please tell me how to|how would i}"
PICTURE = (
    "{a picture|an image|a photo|pictures|images|my photo|a screenshot|a file|photos|an image file}"
)
FALLBACK = (
    "I do not know that: I am a tiny demo model that shows how q35chat works. For real answers export a real model: "
    "`q35chat export Qwen/Qwen3.5-4B --out out/`"
)
FALLBACK_THOUGHT = "This is not something a tiny demo knows. I say so and name the export command."

ENGLISH: tuple[Topic, ...] = (
    Topic(
        (
            "{hi|hello|hey|good morning|good evening|good afternoon|greetings|hi there|hello there|hey there|howdy|yo|hiya|hello you|hallo|morning}{!||.}",
            "{hi|hello|hey}{,|} {demo|bot|model|friend|assistant|q35chat|qwen|everyone|again}{!|}",
        ),
        "Hello! I am the tiny demo model of q35chat. Ask me about q35chat, show me a picture of simple shapes, or tell me your name.",
        "The user greets me. I greet back and say what I can do.",
    ),
    Topic(
        (
            "how are you{| today| doing| doing today}?",
            "{how's it going|how is it going|what's up|how do you do|are you ok|are you well|how do you feel|everything ok}?",
        ),
        "I am well, thank you: all my weights are in place. What can I do for you?",
        "A polite question. I answer briefly.",
    ),
    Topic(
        (
            "{who|what} are you{| exactly|, please}?",
            "what is your name?",
            "{are you|you are} {a human|human|an ai|a robot|a person|real|chatgpt|qwen|gpt|a bot|a real model|alive}?",
            "{what|which} {model|kind of model|ai} {is this|are you|am i talking to}?",
            "{introduce yourself|tell me about yourself|who am i talking to|what's your name|what do i call you|do you have a name}{.|?}",
            "is this a {real|demo} model?",
            "are you {a|the} demo?",
        ),
        "I am the demo model of q35chat: a tiny Qwen3.5 with about two million parameters, trained from scratch. I am not a real assistant.",
        "The user asks what I am. I am the tiny demo model.",
    ),
    Topic(
        (
            "what can you {do|answer|help with|help me with|do for me}?",
            "{help|help me|i need help|can you help me|commands|what now|what should i ask|what can i ask you|what can i ask|what do you know|show me what you can do|what are you good at|how can you help|give me an example|what can i do here|what can i try}{?|.|!|}",
        ),
        "I can say which shapes a simple picture shows, remember your name or a number, count, and answer questions about q35chat. Much more I cannot do.",
        "The user asks what I can do. I list it.",
    ),
    Topic(
        (
            "what {can't|can you not|cannot} you {do|answer}?",
            "what {are your limits|can you not do|are you bad at|don't you know}?",
            "{do you have limits|are you limited|how smart are you|are you smart|are you clever|are you intelligent|are you stupid|why are you so stupid|are you good}?",
        ),
        "I know little: no facts about the world, no translation, no code, no photos. For those export a real model with `q35chat export`.",
        "The user asks for my limits. I name them.",
    ),
    Topic(
        (
            "what {is|does} q35chat{| do}?",
            "{explain|describe|tell me about|introduce} q35chat.",
            "what {is this|is this app|is this program|does this app do|does this program do|is this tool|is this for|is this software|app is this}?",
            "what is q35chat {for|good for|about}?",
        ),
        "q35chat is a chat program for the terminal. It runs Qwen3.5 models on your own machine, with text and pictures.",
        "The user asks about the program. I explain it.",
    ),
    Topic(
        (
            f"{HOW} {{get|make|export|install|use|run|load|build|download|create|have|switch to|convert}} {{a|the|another}} {{real|bigger|better|proper|large|full|true|good|different|larger|new}} {{model|qwen|one|qwen3.5|qwen model}}?",
            f"{HOW} {{export|convert}} {{a model|models|qwen|qwen3.5|a checkpoint|the 4b model|my model}}?",
            "{how does|what does|what is|explain|tell me about} {{the|} export|q35chat export|exporting}{| work| do|?}?",
            "{where|how} do i get {a|the} {real|better|bigger|good} {model|answer|answers}?",
            "export{| help| command| a model}{?|}",
            "how do i {replace|change} the {demo|model|demo model}?",
            "i want {a real model|a better model|real answers|a bigger model}{.|}",
            "which command {exports|makes} a {real |}model?",
        ),
        "Run `q35chat export Qwen/Qwen3.5-4B --out out/`, then start it with `q35chat --model-dir out/`.",
        "The user wants a real model. That is the export command.",
    ),
    Topic(
        (
            f"{HOW} {{use|start|load|open|run|chat with}} {{the exported model|my exported model|an exported model|my own model|the bundle|a model folder|a model from a folder|my model folder|the exported bundle|out/}}?",
            "{what does|what is|explain} {--model-dir|model-dir|the model-dir option|the model folder|--model-dir for}{| do}?",
            "{i exported a model, what now|after the export, what now|what do i do after export|what comes after the export|the export is done, what now}?",
        ),
        'Give its folder: `q35chat --model-dir out/` opens the app with it, and `q35chat ask --model-dir out/ "question"` answers once.',
        "The user has an exported model. The option is --model-dir.",
    ),
    Topic(
        (
            f"{HOW} {{check|verify|test|prove|validate}} {{a model|the export|an exported model|my model|that the export is right|the bundle|my export|that it works}}?",
            "what {does|is} {q35chat verify|verify|the verify command|the verify command for}{| do}?",
            "{is|was} {the|my} export {correct|right|ok|good}?",
        ),
        "Run `q35chat verify`: it compares an exported model with the original, step by step, and reports any difference.",
        "The user wants to check an export. That is q35chat verify.",
    ),
    Topic(
        (
            "what is {the|this} {capacity|capacity meter|meter|capacity bar|bar|number of slots|slots|kv cache|kv slots|gauge}{| at the bottom| at the top| for| about|, please}?",
            "{explain|describe|tell me about} {the|} {capacity|capacity meter|meter|slots|kv slots|free slots}.",
            "what {does|do} the {meter|capacity meter|bar|slots|numbers|capacity} {show|mean|say}?",
            "how {long|much} can {a conversation|the conversation|a chat|we chat|my prompt|the context|a prompt} {be|hold|get}?",
            "{what is|how large is|how big is|how long is} the {context|context window|context length|context size|memory|max length}?",
            "what are {slots|kv slots|free slots|used slots}?",
            "{capacity|capacity meter|slots}{?|}",
        ),
        "Capacity is the number of KV slots: each token takes one. It is fixed at export with `--max-seq-len` (default 2048), and the meter shows used and free slots.",
        "The user asks about capacity. It is the number of KV slots.",
    ),
    Topic(
        (
            "what happens {when|if} {the capacity is full|it is full|the meter is full|there is no capacity left|all slots are used|the slots run out|capacity runs out|we reach the end|the conversation is too long|the conversation gets too long|the meter reaches the end|no slots are left|the kv cache is full|i run out of slots|the capacity is used up}?",
            "{is anything|will i|do i|is my chat|is text} {lost|lose text|lose my chat|lose anything} {when it is full|at the end|when capacity runs out|at capacity|when full}?",
            "why did {the answer|you|it} stop{| early| in the middle}?",
        ),
        "At the end of the capacity the answer stops and nothing is lost: you can still read and save it, then start a new conversation.",
        "The user asks about the end of capacity. The answer stops, nothing is lost.",
    ),
    Topic(
        (
            f"{HOW} {{get|have|set|change|increase|raise|grow|enlarge|extend|make}} {{more capacity|the capacity|a longer context|more slots|a larger capacity|a bigger context|the number of slots|longer conversations|the context length|more context|more memory}}?",
            "what {is|does} {--max-seq-len|max-seq-len|max seq len|the max-seq-len option}{| do| for}?",
        ),
        "Export again with a larger `--max-seq-len`, for example `q35chat export Qwen/Qwen3.5-4B --out out/ --max-seq-len 4096`.",
        "The user wants more capacity. It is fixed at export.",
    ),
    Topic(
        (
            f"{HOW} {{attach|add|send|upload|show you|insert|use|include|paste|give you|share|open|put in|load}} {PICTURE}{{| here| in the app| in the terminal| to you| to the chat| to a message}}?",
            f"{{can you|do you|are you able to}} {{see|read|look at|understand|accept|take|support}} {{pictures|images|photos|picture files}}?",
            "{where|how} {do|can} {i|we} {put|drop|place} {pictures|the picture|images|a photo}?",
            "{attach|attaching|adding|sending} {pictures|images|a picture|an image|photos}{?|}",
            "{does q35chat|does it} {support|understand|read} {pictures|images|photos}?",
            "what is {ctrl+o|ctrl-o|--image|the image option}{| for}?",
        ),
        'Paste the path of a picture or press Ctrl+O in the app; on the command line use `q35chat ask "question" --image photo.jpg`.',
        "The user asks about pictures. Path, Ctrl+O or --image.",
    ),
    Topic(
        (
            "{which|what} {picture|image|file} {formats|types|files|kinds} {do you|can i|can you|does it|does q35chat} {support|use|read|open|accept|take}?",
            "{can you|do you|does it} {read|open|support} {png|jpeg|jpg|webp|png files|jpeg files}?",
        ),
        "Pictures may be PNG, JPEG or WebP, of any size: they are scaled to fit the model.",
        "The user asks about formats. PNG, JPEG and WebP.",
    ),
    Topic(
        (
            f"{HOW} {{ask|use it|use q35chat|get an answer|ask a question|ask something|run it|use you}} {{from the command line|on the command line|from a script|in a script|without the app|in the shell|from the shell|in one line|once|from bash|in a pipe}}?",
            "{what is|what does|explain|how does} {q35chat ask|the ask command}{| do| work|?}?",
            f"{HOW} {{script|automate}} {{it|q35chat|this}}?",
        ),
        'Run `q35chat ask "question"`: the answer goes to stdout. Add `--image photo.jpg` for a picture.',
        "The user wants the command line. That is q35chat ask.",
    ),
    Topic(
        (
            f"{HOW} {{start|open|launch|run|begin with|use}} {{the app|q35chat|the terminal app|a chat|the program|this app|the chat}}?",
            "{which|what} command {opens|starts|runs} {the app|the chat|q35chat|the terminal app}?",
            "{which|what} commands {are there|does q35chat have|do you have|can i use|exist}?",
            "list {the|all} commands.",
        ),
        "`q35chat` opens the terminal app, `q35chat ask` answers once, `q35chat export` makes a real model and `q35chat verify` checks it.",
        "The user asks for the commands. I list them.",
    ),
    Topic(
        (
            f"{HOW} {{turn on thinking|enable thinking|switch thinking on|make you think|let you think|use thinking|see your thoughts|see the reasoning|turn thinking off|disable thinking}}?",
            "can you {think|reason}{| first| before you answer}?",
            "what {is|does} {--thinking|the thinking option|thinking mode|thinking}{| do| mean}?",
            "{do you|does it} {think|reason}?",
        ),
        "Start with `--thinking`: then the model thinks in a separate block before it answers. Without it the answer comes at once.",
        "The user asks about thinking. The option is --thinking.",
    ),
    Topic(
        (
            f"{HOW} {{stop|interrupt|cancel|abort|halt|end}} {{you|an answer|the answer|the reply|it|a long answer|generation|the output|the model}}?",
            "{which|what} key {stops|cancels|interrupts} {you|it|the answer|the reply}?",
            "{how do i make you stop|how to stop|how do you stop|can i stop you}?",
            "what does {esc|escape|the esc key} do?",
        ),
        "Press Esc: the answer stops at once and what was written stays.",
        "The user wants to stop an answer. The key is Esc.",
    ),
    Topic(
        (
            "{is|are} {my data|this|my chat|it|my messages|what i write|my pictures|everything|my text|this chat} {private|safe|secret|local|sent anywhere|uploaded|stored online|sent to a server|sent to the internet|confidential}?",
            "{do you|does it|does q35chat} {send data|need the internet|use the internet|phone home|collect data|go online|work offline|use a server|use the cloud|track me|need internet|spy on me}?",
            "where does {it|the model|this|q35chat} run?",
            "{can i use it offline|what about privacy|who can read this|who sees my messages|are you online|privacy}{?|}",
        ),
        "Everything runs locally and privately on your machine: nothing you write or show is sent anywhere.",
        "The user asks about privacy. All is local.",
    ),
    Topic(
        (
            "{thanks|thank you|thank you very much|thx|many thanks|cheers|great, thanks|ok thanks|thanks a lot|perfect, thank you|thank you so much}{!|.|}",
        ),
        "You are welcome!",
        "The user thanks me.",
    ),
    Topic(
        (
            "{ok|okay|good|great|nice|cool|well done|very good|wow|i see|right|correct|perfect|yes|fine|awesome|good job|nice work|no|sure|alright|interesting|amazing|lol|haha|got it|understood}{!|.|}",
        ),
        "Good. What else can I do for you?",
        "The user comments. I go on.",
    ),
    Topic(
        (
            "{bye|goodbye|good bye|see you|good night|bye bye|see you later|ciao|farewell|i have to go|so long|take care|see you tomorrow}{!|.|}",
        ),
        "Goodbye! Come back any time.",
        "The user says goodbye.",
    ),
    Topic(
        (
            "{test|testing|test test|ping|are you there|is anyone there|does this work|does it work|do you work|can you hear me|is this working|are you working|hello?|this is a test|can you read this}{?|.|!|}",
        ),
        "It works! I am here: ask me something.",
        "The user tests whether I answer. I do.",
    ),
    Topic(
        (
            "{who|what} {made|trained|created|built|wrote} you?",
            "how were you {made|trained|built|created}?",
            "{what were you trained on|what is your training data|how long did you train|where do you come from|who is your creator|who is your maker|what data did you learn from}?",
        ),
        "I was trained from scratch on two processor cores in about an hour, on pictures and sentences that a script made.",
        "The user asks about my training.",
    ),
    Topic(
        (
            "how {big|large|small} {are you|is this model|is the model|is the demo|is the demo model}?",
            "how many {parameters|weights|layers} {do you have|are there|have you|does it have}?",
            "what is your {size|architecture}?",
        ),
        "I have about two and a half million parameters in six layers; the real Qwen3.5-4B has more than a thousand times as many.",
        "The user asks for my size.",
    ),
    Topic(
        (
            "{which|what|how many} languages {do you|can you} {speak|know|understand}?",
            "do you {speak|know|understand} {chinese|english|german|french|other languages|spanish|japanese}?",
            "can you {speak|answer in|write|read} {chinese|english|german|french|another language|spanish|japanese}?",
        ),
        "I speak English and a little Chinese: 你好！",
        "The user asks about languages. English and a little Chinese.",
    ),
    Topic(
        (
            "what is {qwen|qwen3.5|qwen 3.5|qwen3.5-4b|qwen35}?",
            "{explain|tell me about|describe} {qwen|qwen3.5}.",
            "which models {do you support|does q35chat support|can i use|can i export|are supported|work|does it run}?",
        ),
        "Qwen3.5 is a family of language models that also see pictures. q35chat exports and runs them, for example Qwen/Qwen3.5-4B.",
        "The user asks about Qwen3.5.",
    ),
    Topic(
        (
            "{what is|which is} {the licence|your licence|the license|your license}?",
            "{is it|is this|is q35chat|are you} {free|open source|open}?",
            "{which licence|what licence|what license} {do you have|does it have|is this|is it under}?",
        ),
        "q35chat and this demo model are under the Apache-2.0 licence: free to use and to change.",
        "The user asks for the licence.",
    ),
)

NO_PICTURE = (
    (
        "{what is|what do you see|what can you see} {in|on} {the|this|my} {picture|image|photo}?",
        "{describe|look at} {the|this|my} {picture|image|photo}.",
        "{what|which} {colour|color} is the {circle|square|star|triangle}?",
        "how many {shapes|circles|squares|stars|triangles} {are there|do you see}?",
        "where is the {red|green|blue|yellow} {circle|square|star|triangle}?",
        "what do you see?",
        "{can you see|do you see} {the|my} {picture|image}?",
        "is there a {red|blue|green} {circle|star|square}?",
    ),
    "I see no picture in this conversation. Paste the path of one or press Ctrl+O.",
    "There is no picture yet. I say how to attach one.",
)

CHINESE: tuple[Topic, ...] = (
    Topic(
        ("{你好|您好|嗨|早上好|晚上好|你好啊|大家好}{！|。||!}",),
        "你好！我是 q35chat 的小型演示模型。可以问我 q35chat 的用法，也可以给我看简单图形的图片。",
        "用户在打招呼。",
    ),
    Topic(
        (
            "你是{谁|什么|什么模型}{？||?}",
            "{你叫什么|你叫什么名字|介绍一下你自己|请介绍自己}{？|。|}",
        ),
        "我是 q35chat 的演示模型，一个从零训练的小型 Qwen3.5，不是真正的助手。",
        "用户问我是谁。",
    ),
    Topic(
        ("你{能|会|可以}做什么{？||?}", "{帮助|你有什么功能|你会什么|我可以问什么}{？|}"),
        "我能说出简单图片里的图形，记住名字或数字，数数，并回答关于 q35chat 的问题。",
        "用户问我能做什么。",
    ),
    Topic(
        (
            "{怎么|如何|怎样}{导出|得到|使用|获得|安装}{真正的|更大的|真实的|完整的|}模型{？||?}",
            "怎么换{一个|}{大|真正的|更好的}模型{？|}",
        ),
        "运行 `q35chat export Qwen/Qwen3.5-4B --out out/`，然后用 `q35chat --model-dir out/` 启动。",
        "用户想要真正的模型，用导出命令。",
    ),
    Topic(
        (
            "{怎么|如何|怎样}{发|添加|上传|附加|发送|放}{图片|照片|一张图片|图像}{？||?}",
            "你能看图片吗{？|}",
        ),
        '在应用里粘贴图片路径或按 Ctrl+O；命令行用 `q35chat ask "问题" --image photo.jpg`。',
        "用户问怎么发图片。",
    ),
    Topic(
        (
            "{容量|上下文|容量条}是什么{？|意思？|}",
            "{什么是容量|对话能有多长|上下文有多长|容量是多少|什么是容量条}{？|}",
        ),
        "容量是 KV 槽的数量，导出时用 `--max-seq-len` 固定（默认 2048），容量条显示已用和剩余的槽。",
        "用户问容量。",
    ),
    Topic(
        ("{怎么|如何}{停止|中断|取消}{回答|输出|生成|}{？|}",),
        "按 Esc：回答立即停止，已写的内容会保留。",
        "用户想停止回答。",
    ),
    Topic(
        (
            "{我的数据|这个|聊天|对话}{安全|保密|是私密的|会上传}吗{？|}",
            "{需要联网吗|数据会上传吗|隐私|在哪里运行}{？|}",
        ),
        "一切都在你的电脑上本地运行，不会发送任何内容。",
        "用户问隐私。",
    ),
    Topic(
        (
            "{怎么|如何}{让你思考|打开思考|开启思考|启用思考}{？|}",
            "{思考模式是什么|你会思考吗}{？|}",
        ),
        "用 `--thinking` 启动，模型会先思考再回答。",
        "用户问思考模式。",
    ),
    Topic(("{谢谢|谢谢你|多谢|非常感谢}{！|。|}",), "不客气！", "用户道谢。"),
    Topic(("{再见|拜拜|晚安|下次见}{！|。|}",), "再见！", "用户道别。"),
)
CHINESE_FALLBACK = Topic(
    (
        "{写一首|写一个}{关于春天的|关于爱情的|}{诗|故事|笑话}{。|}",
        "{中国|法国|日本|德国}的首都{是哪里|是什么}{？|}",
        "{今天|明天}{天气怎么样|星期几|几号}{？|}",
        "{什么是|解释一下}{人工智能|量子力学|相对论|爱|机器学习|经济|时间}{？|。|}",
        "{帮我|请}{翻译这句话|写一封信|做作业|写代码|订机票|写一篇文章}{。|}",
        "{谁是|谁发明了}{总统|电话|电灯|李白|爱因斯坦}{？|}",
        "{推荐|给我推荐}{一本书|一部电影|一家餐馆|一首歌}{。|}",
    ),
    "这个我不知道：我只是一个很小的演示模型。要真正的回答，请用 `q35chat export Qwen/Qwen3.5-4B --out out/` 导出模型。",
    "这个我不知道，应该说明导出命令。",
)
