// page: {"order": 100, "group": "resources", "icon": "memory", "en": "Memory", "zh": "内存", "needs": ["allocations", "memory"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
