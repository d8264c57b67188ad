// page: {"order": 70, "group": "performance", "icon": "data", "en": "Data preparation", "zh": "数据准备", "needs": ["pipeline", "data", "queue", "steps"]}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
