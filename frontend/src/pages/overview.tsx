// page: {"order": 20, "group": "performance", "icon": "overview", "en": "Overview", "zh": "概览"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
