// page: {"order": 10, "group": "", "icon": "runs", "en": "Runs", "zh": "训练列表", "alone": true}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
