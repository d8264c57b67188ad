// page: {"order": 80, "group": "performance", "icon": "timeline", "en": "Timeline", "zh": "时间线"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
