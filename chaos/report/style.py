"""How the page looks: one style sheet, for light and for dark.

Not here: what is on the page (`page.py`).
"""

from __future__ import annotations

from typing import Final

# Colours of nodes can be told apart by people who do not see red and green apart.
_LIGHT: Final = """
--bg:#f6f7f9;--card:#ffffff;--ink:#1b2430;--soft:#5b6675;--line:#e3e7ec;--lane:#eef1f5;
--accent:#2f5fd0;--ok:#4c8fd6;--unknown:#e3a008;--fail:#c2c8d0;--good:#157f4f;--bad:#c62828;
--warn:#9a6700;--mute:#6b7583;--goodbg:#e6f4ec;--badbg:#fdeaea;--warnbg:#fdf3dc;--mutebg:#eef1f5;
--fault:#c62828;--band:rgba(198,40,40,.065);--n1:#3f7fcf;--n2:#e28e2c;--n3:#2a9d84;--n4:#a667c4;
--n5:#c9576b;--n6:#7b8794;--code:#f0f3f7;
"""
_DARK: Final = """
--bg:#10151c;--card:#171e27;--ink:#e4e9ef;--soft:#9aa6b4;--line:#2a3440;--lane:#212a35;
--accent:#86a9f5;--ok:#5b9ce6;--unknown:#e9b53f;--fail:#566270;--good:#5fd19a;--bad:#ff8080;
--warn:#f0c05a;--mute:#93a0af;--goodbg:#143326;--badbg:#3d1d20;--warnbg:#3a2f14;--mutebg:#222b36;
--fault:#e26d6d;--band:rgba(226,109,109,.10);--n1:#5f9be8;--n2:#f0a552;--n3:#45bfa3;--n4:#c08adb;
--n5:#e77f91;--n6:#9aa6b4;--code:#0f141a;
"""

STYLE: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    """
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;-webkit-font-smoothing:antialiased}
main{max-width:1240px;margin:0 auto;padding:28px 24px 60px}
h1{font-size:25px;line-height:1.25;margin:0;letter-spacing:-.01em}
h2{font-size:17px;margin:0 0 4px}
p{margin:0}.soft{color:var(--soft)}.lead{color:var(--soft);margin:0 0 14px;max-width:78ch}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 22px;
margin-top:16px}
header{border-left:6px solid var(--mute)}header.passed{border-left-color:var(--good)}
header.failed{border-left-color:var(--bad)}header.inconclusive{border-left-color:var(--warn)}
header.harness{border-left-color:var(--warn)}
.top{display:flex;gap:16px;align-items:flex-start;justify-content:space-between;flex-wrap:wrap}
.kicker{font-size:12.5px;color:var(--soft);letter-spacing:.02em;margin-bottom:2px}
.verdict{font-size:16px;margin-top:8px;max-width:80ch}
.pill{display:inline-block;border-radius:999px;padding:2px 11px;font-size:12.5px;font-weight:600;
white-space:nowrap}
.pill.big{font-size:15px;padding:6px 18px}
.held,.passed .pill.big{color:var(--good);background:var(--goodbg)}
.broken,.failed .pill.big{color:var(--bad);background:var(--badbg)}
.counted,.inconclusive .pill.big,.harness .pill.big{color:var(--warn);background:var(--warnbg)}
.unjudged{color:var(--mute);background:var(--mutebg)}
.repeat{display:flex;gap:10px;align-items:baseline;margin-top:14px;flex-wrap:wrap}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:3px 8px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:1px;
background:var(--line);border:1px solid var(--line);border-radius:12px;overflow:hidden;
margin-top:16px}
.tile{background:var(--card);padding:13px 16px}.tile b{display:block;font-size:22px;
font-weight:600;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:12.5px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:600;font-size:12.5px;color:var(--soft);padding:6px 12px 6px 0;
border-bottom:1px solid var(--line);white-space:nowrap}
td{padding:8px 12px 8px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child>td{border-bottom:0}
td.num,th.num{text-align:right;padding-right:18px;font-variant-numeric:tabular-nums;white-space:nowrap}
td.row{color:var(--soft);font-variant-numeric:tabular-nums;width:34px}
td.name{white-space:nowrap;font:12.5px ui-monospace,Menlo,Consolas,monospace;padding-top:10px;
color:var(--soft)}
.found{color:var(--soft);font-size:13.5px}.found.bad{color:var(--ink)}
details{margin-top:5px}summary{cursor:pointer;color:var(--accent);font-size:13px}
pre{background:var(--code);border:1px solid var(--line);border-radius:8px;padding:10px 12px;
overflow:auto;margin:8px 0 2px;max-height:340px;white-space:pre-wrap;word-break:break-all}
.bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:4px 12px;font-size:13.5px;
align-items:center}
.bars i{display:block;height:9px;border-radius:3px;min-width:2px}
.bars i.ok{background:var(--ok)}.bars i.unknown{background:var(--unknown)}
.bars i.fail{background:var(--fail)}
.bars b{font-weight:400;font-variant-numeric:tabular-nums;text-align:right}
.two{display:grid;grid-template-columns:1fr 1fr;gap:16px}
@media(max-width:860px){.two{grid-template-columns:1fr}main{padding:14px 12px 40px}}
.two section{margin-top:16px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:8px 0 0;font-size:14px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.alarm{border-color:var(--bad);background:var(--badbg)}
.alarm li{margin:2px 0}
svg.timeline{width:100%;min-width:820px;height:auto;display:block;margin-top:6px;
font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
svg .head{font-size:12.5px;font-weight:600;fill:var(--ink)}
svg .label{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
svg .small{fill:var(--soft);font-size:11px}svg .on{fill:#fff;font-size:11px;font-weight:600}
svg .band{fill:var(--band)}svg .fault{fill:var(--fault)}svg .lane{fill:var(--lane)}
svg .grid{stroke:var(--line);stroke-width:1}svg .tick{stroke:var(--soft);stroke-width:1}
svg .note{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;opacity:.5}
svg .phase{fill:var(--lane)}
svg .outage{fill:var(--bad)}svg .nobody{fill:var(--ink);opacity:.75}
svg .n1{fill:var(--n1)}svg .n2{fill:var(--n2)}svg .n3{fill:var(--n3)}svg .n4{fill:var(--n4)}
svg .n5{fill:var(--n5)}svg .n6{fill:var(--n6)}
svg path.n1{stroke:var(--n1)}svg path.n2{stroke:var(--n2)}svg path.n3{stroke:var(--n3)}
svg path.n4{stroke:var(--n4)}svg path.n5{stroke:var(--n5)}svg path.n6{stroke:var(--n6)}
svg path.outage{stroke:var(--bad)}svg path.fault{stroke:var(--fault)}
svg path.nobody{stroke:var(--ink)}
svg .ok{fill:var(--ok)}svg .unknown{fill:var(--unknown)}svg .fail{fill:var(--fail)}
svg .p50{fill:none;stroke:var(--n1);stroke-width:1.8;stroke-linejoin:round}
svg .p99{fill:none;stroke:var(--n2);stroke-width:1.4;stroke-linejoin:round}
svg .max{fill:var(--soft);opacity:.55}svg .p50key{fill:var(--n1)}svg .p99key{fill:var(--n2)}
svg .maxkey{fill:var(--soft);opacity:.55}
a{color:var(--accent);text-decoration:none;font-weight:600}a:hover{text-decoration:underline}
footer{color:var(--soft);font-size:12.5px;margin-top:18px}
@media print{body{background:#fff}section{break-inside:avoid}}
"""
)
