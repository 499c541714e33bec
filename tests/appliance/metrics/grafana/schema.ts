// What Grafana's own types allow in a dashboard, for JSON: an enum there is its value here, and every field is optional.
import type { Dashboard, Panel, RowPanel } from "@grafana/schema";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { FieldConfig as TimeseriesField, Options as TimeseriesOptions } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Json<T> = T extends string ? `${T}` : T extends readonly (infer U)[] ? Json<U>[] : T extends object ? { [K in keyof T]?: Json<T[K]> } : T;
interface Target { refId: string; expr: string; legendFormat?: string; format?: "time_series" | "table" | "heatmap"; instant?: boolean; datasource: { type: "prometheus"; uid: string } }
type Of<Kind extends string, Options, Field> = Json<Omit<Panel, "type" | "options" | "fieldConfig" | "targets">> & {
  type: Kind; id: number; title: string; gridPos: { h: number; w: number; x: number; y: number }; targets: Target[];
  options: Json<Options>; fieldConfig: { defaults: Json<NonNullable<Panel["fieldConfig"]>["defaults"]> & { custom?: Json<Field> }; overrides: Json<NonNullable<Panel["fieldConfig"]>["overrides"]> };
};
export type Shown = Of<"stat", StatOptions, Record<string, never>> | Of<"timeseries", TimeseriesOptions, TimeseriesField> | (Json<RowPanel> & { type: "row" });
export type Board = Json<Omit<Dashboard, "panels">> & { panels: Shown[] };
