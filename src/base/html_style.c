/* How reports look. Colours are those of Okabe and Ito, told apart with any colour vision: stalls take orange,
 * vermilion, purple and grey; layouts yellow, sky blue, green, blue and black with steps between, darker with the
 * number of stages (but black is white on dark), so that they differ in lightness too. */
#include "base/html.h"

#define LIGHT                                                                                                          \
    "--bg:#fff;--ink:#1b1e22;--mute:#5a616b;--line:#e3e6ea;--card:#f4f6f8;--av:#d5d9de;--avl:#b3b9c2;--edge:#7b838e;"  \
    "--pipe:rgba(255,255,255,.75);--idle:#3f454d;--deep:#111;--best:#0072b2;--other:#56b4e9;--ondeep:#fff;--won:#"     \
    "0072b2;--more:#a5adb8"
#define DARK                                                                                                           \
    "--bg:#15181c;--ink:#e9ebee;--mute:#a2a9b3;--line:#2c3239;--card:#1e2329;--av:#3a414a;--avl:#505964;--edge:#"      \
    "8c95a1;"                                                                                                          \
    "--pipe:rgba(21,24,28,.6);--idle:#dde1e6;--deep:#f4f4f4;--best:#56b4e9;--other:#2c6788;--ondeep:#000;--won:#"      \
    "56b4e9;--more:#7d8793"

const char tm_html__style[] =
    ":root{color-scheme:light dark;" LIGHT "}"
    "@media screen and (prefers-color-scheme:dark){:root{" DARK "}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;padding:24px 20px 60px;max-width:1160px;background:var(--bg);color:var(--ink);"
    "font:14px/1.45 system-ui,-apple-system,\"Segoe UI\",\"Liberation Sans\",Arial,sans-serif;"
    "-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "h1{font-size:24px;line-height:1.2;margin:0 0 8px;overflow-wrap:anywhere}"
    "h2{font-size:19px;margin:36px 0 12px;overflow-wrap:anywhere}"
    "h4{font-size:14px;margin:0 0 4px}h4 small,.on,small{font-weight:400;color:var(--mute)}small{font-size:12px}"
    ".repeat{margin:0;color:var(--mute)}"
    "code{display:inline-block;padding:3px 8px;background:var(--card);color:var(--ink);border-radius:4px;"
    "font:12.5px/1.5 ui-monospace,\"DejaVu Sans Mono\",monospace;overflow-wrap:anywhere;white-space:pre-wrap}"
    ".note{color:var(--mute);font-size:12.5px}.won{color:var(--won);font-weight:700}.bnd{font-style:italic}"
    ".defs{position:absolute;width:0;height:0}"
    /* cards */
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:12px}"
    ".card{background:var(--card);border-radius:8px;padding:10px 14px}.card span{display:block;color:var(--mute);"
    "font-size:12.5px}.card b{display:block;font-size:23px;line-height:1.3;overflow-wrap:anywhere}"
    ".card:first-child b{color:var(--won)}.card small{display:block}"
    /* bars */
    ".trio{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:16px 28px;margin-top:20px}"
    ".bars{margin:0;display:grid;grid-template-columns:minmax(84px,max-content) 1fr;column-gap:8px;font-size:12.5px;"
    "align-content:start}figcaption{grid-column:1/-1;font-weight:700;font-size:14px;margin-bottom:6px}"
    ".bars "
    "svg{display:block;width:100%;height:22px;overflow:visible}.name{text-align:right;line-height:22px;max-width:150px;"
    "white-space:nowrap;overflow:hidden;text-overflow:ellipsis}.bars text{fill:var(--ink);font-size:12px}"
    "text.best{font-weight:700}rect.best,i.best{fill:var(--best);background:var(--best)}"
    "rect.other,i.other{fill:var(--other);background:var(--other)}"
    "rect.bound,i.bound{fill:transparent;stroke:var(--edge);stroke-dasharray:3 2}i.bound{outline:1px dashed "
    "var(--edge);"
    "outline-offset:-1px}.bscale{position:relative;height:18px;border-top:1px solid var(--edge)}"
    ".bscale i,.scale i{position:absolute;top:2px;transform:translateX(-50%);font-style:normal;font-size:11px;"
    "color:var(--mute)}.bscale i:first-child,.scale i:first-child{transform:none}.scale "
    ".hi{transform:translateX(-100%)}.grid{stroke:var(--line);fill:none}"
    /* legends */
    ".legend{list-style:none;margin:10px 0;padding:0;display:flex;flex-wrap:wrap;gap:4px 16px;font-size:12.5px}"
    ".legend i{display:inline-block;width:14px;height:12px;margin-right:5px;vertical-align:-1px}"
    ".legend .note{font-size:12.5px}"
    /* stalls */
    ".w1{fill:#e69f00;background:#e69f00}.w2{fill:#d55e00;background:#d55e00}"
    ".w3{fill:var(--idle);background:var(--idle)}.w4{fill:#cc79a7;background:#cc79a7}"
    /* layouts, by number of stages */
    ".k0{fill:#f0e442;background:#f0e442}.k1{fill:#97d36f;background:#97d36f}.k2{fill:#56b4e9;background:#56b4e9}"
    ".k3{fill:#009e73;background:#009e73}.k4{fill:#0072b2;background:#0072b2}.k5{fill:#004a75;background:#004a75}"
    ".k6{fill:var(--deep);background:var(--deep)}.k7{fill:var(--more);background:var(--more)}"
    /* timelines */
    "details{margin:18px 0}summary{font-size:16px;font-weight:700;cursor:pointer}"
    ".strip{margin:18px 0 10px;break-inside:avoid}"
    ".lane{display:grid;grid-template-columns:66px minmax(0,1fr);margin-bottom:8px}"
    ".y{position:relative;font-size:11px;line-height:14px;color:var(--mute)}.y .c{position:absolute;left:0;top:50%;"
    "transform:translateY(-50%) rotate(180deg);writing-mode:vertical-rl;font-size:11.5px}"
    ".stall .c{writing-mode:horizontal-tb!important;transform:translateY(-50%)!important}"
    ".y i{position:absolute;right:7px;transform:translateY(-50%);font-style:normal}.y .hi{transform:translateY(-4px)}"
    ".y .lo{transform:translateY(-10px)}.plot{position:relative;border-left:1px solid var(--edge);border-bottom:1px "
    "solid var(--edge)}"
    ".plot svg{display:block;position:absolute;inset:0;width:100%;height:100%}.t{pointer-events:none;overflow:visible}"
    ".d path{vector-effect:non-scaling-stroke}"
    ".nodes{height:112px}.rate{height:58px}.stall{height:18px;margin-bottom:0}.stall .y "
    "i{display:none}.fan{height:170px}"
    ".scale{height:34px}.scale .plot{border:0}.scale i{top:2px}.scale b{position:absolute;top:17px;left:50%;"
    "transform:translateX(-50%);font-weight:400;font-size:11.5px;color:var(--mute);white-space:nowrap}"
    ".av{fill:var(--av);background:var(--av);stroke:var(--edge);stroke-width:1}.avl{fill:var(--avl)}"
    ".d rect,.d .b{stroke:var(--bg);stroke-width:1;vector-effect:non-scaling-stroke}"
    ".pipe{stroke:var(--pipe);fill:none;stroke-width:1}"
    ".rt{fill:#56b4e9;fill-opacity:.55;stroke:#0072b2;stroke-width:1.2}i.rt{background:#56b4e9}"
    ".ideal{fill:none;stroke:var(--ink);stroke-opacity:.6;stroke-width:1;stroke-dasharray:3 2;"
    "vector-effect:non-scaling-stroke}i.idl{height:0!important;border-top:2px dashed var(--mute);"
    "vertical-align:4px!important}.due{stroke:#d55e00;stroke-width:2}.done{stroke:var(--ink);stroke-width:2}"
    ".t text{font-size:11px;text-anchor:middle;dominant-baseline:central;background:none}"
    ".t .k0,.t .k1,.t .k2,.t .k3,.t .k7{fill:#000}.t .k4,.t .k5{fill:#fff}.t .k6{fill:var(--ondeep)}"
    ".t .m{fill:var(--ink);paint-order:stroke;stroke:var(--bg);stroke-width:3px;stroke-opacity:.8}.t "
    ".s{text-anchor:start;transform:translateX(4px)}"
    ".t .e{text-anchor:end;transform:translateX(-4px)}"
    /* fans */
    ".band{fill:#56b4e9;fill-opacity:.4;background:rgba(86,180,233,.4)}.median{fill:none;stroke:#0072b2;"
    "stroke-width:1.5;stroke-dasharray:5 3}.truth{fill:none;stroke:var(--ink);stroke-width:1.7}"
    "i.truth{height:0!important;border-top:2px solid var(--ink);vertical-align:4px!important}"
    "i.median{height:0!important;border-top:2px dashed #0072b2;vertical-align:4px!important}"
    /* a run: how long each instance was there */
    ".stall+.nodes{margin-top:14px}.repeat+.cards,header+.cards{margin-top:16px}"
    ".stay{height:16px;margin-bottom:0}.stay .plot{border-bottom:0}.stay .y .c{writing-mode:horizontal-tb;"
    "transform:translateY(-50%);left:auto;right:7px}.stays{break-inside:auto}"
    /* tables */
    ".scroll{overflow-x:auto;margin:14px 0}table{border-collapse:collapse;font-size:12.5px;width:100%;"
    "font-variant-numeric:tabular-nums}th,td{padding:4px 7px;border-bottom:1px solid var(--line);text-align:right;"
    "white-space:nowrap}thead th{vertical-align:bottom;font-weight:600;white-space:normal;line-height:1.2}"
    "th:first-child,.overview th:nth-child(2),.words *{text-align:left}tbody th{font-weight:400}"
    ".scroll th:first-child{position:sticky;left:0;background:var(--bg)}"
    ".words td{white-space:normal}tr.won *,td.won{font-weight:700}tr.won th,td.won{color:var(--won)}"
    ".sum>*{border-top:2px solid var(--edge);font-weight:600}a{color:inherit}"
    "@media(max-width:640px){body{padding:14px 12px 40px}h1{font-size:20px}.lane{grid-template-columns:58px "
    "minmax(0,1fr)}.t .n{display:none}.cards{grid-template-columns:1fr 1fr}.card b{font-size:18px}}"
    "@media print{@page{margin:12mm}body{max-width:none;padding:0;font-size:11px}"
    "article+article,details{break-before:page}article.fans,article.flow,article.flow~details{break-before:auto}"
    "h2,h4,summary,.legend,thead{break-after:avoid}.cards,.trio,table,.legend{break-inside:avoid}"
    ".trio{grid-template-columns:repeat(3,1fr);gap:10px 12px}.cards{grid-template-columns:repeat(4,1fr)}"
    ".card b{font-size:17px}.card{border:1px solid var(--line)}"
    ".bars{grid-template-columns:minmax(50px,max-content) 1fr;column-gap:5px}.bars svg{height:17px}"
    ".bars text,.name{font-size:9px;line-height:17px}.bars rect{height:12px}.bars text{transform:translateY(-3px)}"
    "figcaption{font-size:11px}.name{max-width:80px}.legend,.legend .note{font-size:10px}"
    "table{font-size:8.5px}table small{font-size:inherit}h4,h4 small{font-size:10.5px}.strip{margin:8px "
    "0}th,td{padding:2px 4px}.scroll{overflow:visible}"
    ".t text,.y .c{font-size:9px}.nodes{height:74px}.rate{height:40px}.lane{margin-bottom:5px}.scale{height:30px}}";

/* On paper all is open. Reading needs no script. */
const char tm_html__script[] = "addEventListener('beforeprint',function(){document.querySelectorAll('details')."
                               "forEach(function(d){d.open=true})})";
