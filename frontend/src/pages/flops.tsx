// page: {"order": 60, "group": "performance", "icon": "flops", "en": "FLOPs", "zh": "浮点运算", "needs": ["op", "kernel"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
