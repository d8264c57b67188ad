/** What help says: beside the page, which goes on working. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { FAMILIES } from "./colors";
import { Icon, Swatch } from "./parts/basics";
import { language } from "./state";
import { texts } from "./text";

const text = texts({
  en: { title: "Help", close: "Close", keys: "Keys", colours: "Colours", coloursNote: "Cool is work, warm is time lost, hatched grey is nothing.", families: "Operators take one hue per family; the same operator has the same colour on every page.", words: "Words", docs: "Documentation", docsNote: "in the folder docs of the source, and in the package’s page", chart: "In charts", timeline: "On the timeline", table: "In tables", everywhere: "Everywhere" },
  zh: { title: "帮助", close: "关闭", keys: "按键", colours: "颜色", coloursNote: "冷色是工作，暖色是损失的时间，灰色斜纹是空闲。", families: "算子按族着色；同一算子在所有页面颜色相同。", words: "术语", docs: "文档", docsNote: "在源码的 docs 目录和软件包主页", chart: "图表中", timeline: "时间线上", table: "表格中", everywhere: "所有页面" },
});

type Both = { en: string; zh: string };

const KEYS: ["everywhere" | "chart" | "timeline" | "table", [string, Both][]][] = [
  ["everywhere", [
    ["Ctrl C", { en: "copy the exact value of the number under the pointer", zh: "复制指针所指数字的精确值" }],
    ["/ · Ctrl K", { en: "find a page, step, operator, kernel, run or command", zh: "查找页面、迭代、算子、内核、训练或命令" }],
    ["Ctrl Enter", { en: "in the search: show it on the timeline; on Query: run the question", zh: "搜索中：在时间线上显示；查询页：运行" }],
    ["?", { en: "this help, and away with it", zh: "打开或关闭此帮助" }],
    ["Esc", { en: "close what was opened last; the focus returns", zh: "关闭最后打开的内容，焦点返回" }],
    ["← →", { en: "move between tabs", zh: "在标签页之间移动" }],
  ]],
  ["chart", [
    ["drag", { en: "choose a range; it is kept in the address and applies to the tables", zh: "选择范围；保存在地址中并应用于表格" }],
    ["double-click", { en: "all of it again", zh: "恢复全部" }],
    ["Ctrl wheel", { en: "zoom at the pointer", zh: "以指针为中心缩放" }],
    ["← → · Enter", { en: "move the crosshair by a point; open the point", zh: "逐点移动准线；打开该点" }],
  ]],
  ["timeline", [
    ["W · S", { en: "zoom in and out at the pointer; the wheel, too", zh: "以指针为中心放大和缩小；滚轮亦可" }],
    ["A · D · ← →", { en: "earlier and later", zh: "更早与更晚" }],
    ["↑ ↓ · Shift wheel", { en: "other lanes", zh: "其他泳道" }],
    ["0", { en: "all of it", zh: "全部" }],
    ["/", { en: "search; Enter and Shift Enter go to the next and previous", zh: "搜索；回车与 Shift 回车到下一个与上一个" }],
    ["Shift ← → ↑ ↓", { en: "from event to event, and to those above and below", zh: "在事件之间及上下层移动" }],
    ["[ · ]", { en: "previous and next of the same name", zh: "上一个与下一个同名事件" }],
    ["C · E", { en: "along an arrow: to the cause, to the effect", zh: "沿箭头前往起因或后果" }],
    ["X", { en: "the same communication on the next rank", zh: "下一个 rank 上的同一通信" }],
    ["F", { en: "go to what is selected", zh: "前往所选内容" }],
    ["R", { en: "select the time of the event, or what is in view", zh: "选择该事件的时间，或当前范围" }],
    ["T", { en: "measure: set a point of the ruler at the pointer, or at an edge of the event; Esc ends", zh: "测量：在指针处或事件边缘设点；Esc 结束" }],
    ["M", { en: "keep the range as a note", zh: "将范围保存为笔记" }],
    ["Backspace", { en: "back to the view before; with Shift forward", zh: "回到之前的视图；加 Shift 前进" }],
    ["drag", { en: "select a range; over several lanes, these alone. Middle button: pan", zh: "选择范围；跨多条泳道时仅选这些泳道。中键：平移" }],
    ["Tab · P · Delete", { en: "to a lane’s name; there pin and hide it, + and − change its height, Alt with ↑ ↓ moves it", zh: "到泳道名称；在那里固定或隐藏，+ − 改变高度，Alt 加 ↑ ↓ 移动" }],
  ]],
  ["table", [
    ["↑ ↓ · PgUp PgDn", { en: "move between rows", zh: "在行之间移动" }],
    ["Enter", { en: "open the row", zh: "打开该行" }],
    ["→ ←", { en: "unfold and fold a row", zh: "展开和收起行" }],
    ["Ctrl C", { en: "copy the row with exact values", zh: "复制该行的精确值" }],
  ]],
];

const KINDS: [string, Both][] = [
  ["compute", { en: "kernels and operators on a device", zh: "设备上的内核和算子" }],
  ["host", { en: "Python, runtime calls, launches", zh: "Python、运行时调用、下发" }],
  ["copy", { en: "copies and fills of memory", zh: "内存拷贝与填充" }],
  ["communication", { en: "collectives; a tint with an outline where computation hides them", zh: "集合通信；被计算隐藏时为带边框的浅色" }],
  ["wait", { en: "waiting for input, empty queues", zh: "等待输入、空队列" }],
  ["idle", { en: "nothing ran", zh: "没有运行" }],
];

const FAMILY: Record<(typeof FAMILIES)[number], Both> = {
  matmul: { en: "matrix multiply", zh: "矩阵乘" }, attention: { en: "attention", zh: "注意力" }, conv: { en: "convolution", zh: "卷积" }, norm: { en: "normalisation", zh: "归一化" }, elem: { en: "element-wise", zh: "逐元素" },
  reduce: { en: "reductions", zh: "规约" }, cast: { en: "copies and casts", zh: "拷贝与转换" }, optim: { en: "optimizer", zh: "优化器" }, index: { en: "indexing, embedding", zh: "索引、嵌入" }, other: { en: "other", zh: "其他" }, communication: { en: "communication", zh: "通信" },
};

const WORDS: [Both, Both][] = [
  [{ en: "Step", zh: "迭代" }, { en: "One iteration, as the framework or the user marked it. A trace without markers is one step, and says so.", zh: "一次迭代，由框架或用户标记。没有标记的 trace 是一个迭代，并会注明。" }],
  [{ en: "Interval", zh: "迭代间隙" }, { en: "From the start of a step to its forward pass: mostly waiting for data.", zh: "从迭代开始到前向开始：主要是等待数据。" }],
  [{ en: "Forward and backward", zh: "前向与反向" }, { en: "From the first operator of the forward pass to the last of the backward pass.", zh: "从前向的第一个算子到反向的最后一个算子。" }],
  [{ en: "Tail", zh: "迭代拖尾" }, { en: "What is left after the backward pass: gradient aggregation, the optimizer. Interval, forward and backward, and tail add up to the step.", zh: "反向之后的部分：梯度聚合、优化器。间隙、前向反向与拖尾之和即迭代。" }],
  [{ en: "Busy", zh: "繁忙" }, { en: "Something ran on the device; on the host where there is no device. Overlapping work counts once. Busy is compute, communication and copy together: a moment counts as communication where nothing computes, as copy where neither does.", zh: "设备上有运行；没有设备时指主机。重叠的工作只计一次。忙碌即计算、通信与拷贝之和：没有计算时记为通信，二者都没有时记为拷贝。" }],
  [{ en: "Step on the device", zh: "设备上的迭代" }, { en: "A device runs behind its host. Where the trace draws steps on the device, too, a step lasts there until its last work has ended, and shares of the device are of that time. Elsewhere they are of the step on the host.", zh: "设备落后于主机运行。若 trace 在设备侧也画出迭代，则迭代在设备上持续到其最后一项工作结束，设备的占比以该时间计；否则以主机上的迭代计。" }],
  [{ en: "Steps that count", zh: "计入的迭代" }, { en: "A first step that was plainly slower is left out of every figure of a step. Totals of operators and kernels are of the whole recording.", zh: "明显更慢的首个迭代不计入任何按迭代统计的指标。算子和内核的总量覆盖整个记录。" }],
  [{ en: "Input wait", zh: "等待输入" }, { en: "The thread that runs the steps waited for its next batch.", zh: "执行迭代的线程在等待下一批数据。" }],
  [{ en: "Exposed communication", zh: "未隐藏的通信" }, { en: "Communication while nothing was computed on the device. Hidden communication costs no time.", zh: "设备上没有计算时的通信。被隐藏的通信不花时间。" }],
  [{ en: "Free", zh: "空闲" }, { en: "Nothing ran on the device: no computation, no communication, no copy.", zh: "设备上没有计算、通信或拷贝。" }],
  [{ en: "Self time", zh: "自身时间" }, { en: "An operator’s time less that of the operators it called.", zh: "算子的时间减去它所调用算子的时间。" }],
  [{ en: "Launch delay", zh: "下发延迟" }, { en: "From the launch call on the host to the start of the kernel.", zh: "从主机下发调用到内核开始。" }],
  [{ en: "Utilization", zh: "利用率" }, { en: "The time the chip would need at its dense peak over the time that was taken; FLOPs are those of operators that can be counted.", zh: "芯片以稠密峰值所需时间与实际时间之比；FLOPs 仅含可计数的算子。" }],
  [{ en: "Allocated, reserved, static", zh: "已分配、预留、静态" }, { en: "In use by tensors; held by the framework’s pool; there before the recording and after it. Reserved less allocated at the peak is fragmentation.", zh: "张量使用中；框架内存池持有；记录前后都在。峰值时预留减已分配即碎片。" }],
  [{ en: "p50, p90, p99", zh: "p50、p90、p99" }, { en: "The value that so many percent of the values do not exceed: one that happened, not an average.", zh: "有该百分比的值不超过它：是实际出现的值，不是平均。" }],
  [{ en: "Missing: –", zh: "缺失：–" }, { en: "Not measured; the reason is on hover. Zero is written as 0.", zh: "未测量；悬停显示原因。零写作 0。" }],
];

const DOCS: [string, Both][] = [
  ["docs/run.md", { en: "record a job that nobody edited: stepscope run", zh: "无需改动脚本的记录：stepscope run" }],
  ["docs/timeline.md", { en: "every lane, key and gesture of the timeline", zh: "时间线的泳道、按键与手势" }],
  ["docs/recording.md", { en: "Profiler: every argument, by platform", zh: "Profiler：各平台的所有参数" }],
  ["docs/attach.md", { en: "record a job that is running", zh: "记录正在运行的任务" }],
  ["docs/formats.md", { en: "what can be opened, and what becomes of it", zh: "可以打开的格式" }],
  ["docs/cli.md", { en: "the same answers in a terminal", zh: "在终端中得到同样的结果" }],
  ["docs/python.md", { en: "and in Python", zh: "在 Python 中" }],
  ["docs/reference.md", { en: "every analysis, table and column", zh: "所有分析、表和列" }],
  ["docs/data_model.md", { en: "what the tables and counters mean", zh: "表和计数器的含义" }],
];

export function Manual({ close }: { close: () => void }) {
  const t = text();
  const box = useRef<HTMLDivElement>(null);
  const own = language();
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.focus();
    const keys = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.stopImmediatePropagation();
      close();
    };
    document.addEventListener("keydown", keys, true);
    return () => {
      document.removeEventListener("keydown", keys, true);
      before?.focus?.();
    };
  }, []);
  return (
    <div class="manual" ref={box} tabIndex={-1} role="dialog" aria-modal="false" aria-label={t.title}>
      <header class="hd"><h2>{t.title}</h2><span class="sp" /><button class="pick bare" aria-label={t.close} onClick={close}><Icon name="close" size={14} /></button></header>
      <div class="manualbody">
        <h3>{t.keys}</h3>
        {KEYS.map(([group, keys]) => (
          <div key={group}>
            <p class="d3 small">{t[group]}</p>
            <dl class="keys">{keys.map(([key, says]) => [<dt key={key}>{key.split(" · ").map((one) => <kbd key={one} class="kbd">{one}</kbd>)}</dt>, <dd key={`${key} says`}>{says[own]}</dd>])}</dl>
          </div>
        ))}
        <h3>{t.colours}</h3>
        <p>{t.coloursNote}</p>
        <dl class="keys">{KINDS.map(([kind, says]) => [<dt key={kind}><Swatch color={`var(--kind-${kind})`} hatch={kind === "idle"} /> {kind}</dt>, <dd key={`${kind} says`}>{says[own]}</dd>])}</dl>
        <p>{t.families}</p>
        <p class="familylist">{FAMILIES.filter((family) => family !== "communication").map((family) => <span key={family}><Swatch color={`var(--op-${family})`} /> {FAMILY[family][own]}</span>)}</p>
        <h3>{t.words}</h3>
        <dl class="words">{WORDS.map(([word, says]) => [<dt key={word.en}>{word[own]}</dt>, <dd key={`${word.en} says`}>{says[own]}</dd>])}</dl>
        <h3>{t.docs}</h3>
        <p class="d3 small">{t.docsNote}</p>
        <dl class="keys">{DOCS.map(([file, says]) => [<dt key={file} class="mono">{file}</dt>, <dd key={`${file} says`}>{says[own]}</dd>])}</dl>
      </div>
    </div>
  );
}
