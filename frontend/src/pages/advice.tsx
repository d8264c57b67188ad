// page: {"order": 120, "group": "tools", "icon": "advice", "en": "Advice", "zh": "建议"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
