// page: {"order": 30, "group": "performance", "icon": "steps", "en": "Step trace", "zh": "迭代轨迹", "needs": ["steps"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
